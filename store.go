package oncepipe

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strings"
	"time"
)

// Store is the durable record of keys: what has been done, what is being done
// and by whom. The implementations are store/memstore (the reference),
// store/sqlstore and others in modules of their own; oncetest.Store holds any
// implementation to the rules of docs/store-contract.md.
//
// A record moves like this:
//
//	absent    ─Claim→              claimed
//	claimed   ─Complete→           completed
//	claimed   ─Release(ToWaiting)→ waiting     ─Claim, once due→ claimed
//	claimed   ─Release(ToFailed)→  failed      ─Claim→ claimed
//	claimed   ─Release(ToUnknown)→ unknown     ─Resolve→ completed, waiting or failed
//	failed    ─Resolve→            completed, or waiting (a redrive)
//	claimed, lease over ─Claim→    claimed (a takeover), or unknown where the claim asks for that
//	any       ─Forget→             absent (a live claim only by force)
//	completed, failed, waiting ─Prune after the retention→ absent
//
// Rules for every method:
//
//   - It takes a batch and answers item by item, in the order of the request. A
//     key may occur more than once in a batch; the items act as if they came one
//     after the other.
//   - What became of an item is a value; an error means that nothing is known of
//     the whole batch. An outage must never look like "new" or "duplicate".
//   - A request whose reply was lost can be repeated with the same ClaimID and
//     gets the answer that the first one would have got.
//   - Keys are compared byte by byte.
//   - Leases, backoffs and retentions are judged by the store's clock alone;
//     callers see remaining times.
//   - It is safe for concurrent use.
type Store interface {
	// Claim asks for the right to act on each key. A Lease that is not positive,
	// a zero Claim and an empty Key are refused with an error, and with them the
	// batch. A claim that is repeated while it holds runs from the repetition on,
	// since its owner counts from there; once it was given back its ClaimID is
	// spent, so that a request that arrives late acquires nothing.
	Claim(ctx context.Context, reqs []ClaimRequest) ([]ClaimAnswer, error)

	// Extend renews leases; one that is not positive is refused. held[i] is false
	// when the claim is no longer this one, which the store tells by the ClaimID,
	// never by the owner's name. A claim whose lease is over but which nobody took
	// is still held.
	Extend(ctx context.Context, reqs []Extension) (held []bool, err error)

	// Complete records that the effect is done. Completing twice with the same
	// ClaimID is held both times and changes nothing the second time. held[i] is
	// false, and nothing is changed, when the claim is no longer this one.
	Complete(ctx context.Context, reqs []Completion) (held []bool, err error)

	// Release gives claims back without an effect. Like Complete, it is held
	// again when repeated and changes nothing for a claim that is not this one.
	Release(ctx context.Context, reqs []ReleaseRequest) (held []bool, err error)

	// Lookup reads records without changing them. A key that is not there has
	// StateAbsent.
	Lookup(ctx context.Context, ids []RecordID) ([]Record, error)

	// Resolve settles an unknown or failed record by hand: To is StateCompleted,
	// StateWaiting (to be run again at once; attempts and takeovers of one that was
	// failed are counted anew) or StateFailed. done[i] is false, and nothing is changed, when the
	// record is neither, or its Fence is another one: somebody has acted since it
	// was looked at.
	Resolve(ctx context.Context, reqs []Resolution) (done []bool, err error)

	// Forget removes records, so that their keys are new again. gone[i] is false
	// when a live claim was left alone because force was not given.
	Forget(ctx context.Context, ids []RecordID, force bool) (gone []bool, err error)

	// List reads records of one state, in the order of their namespaces and keys
	// as they are stored, byte by byte. The state is one of those that a person may
	// want to look at, StateWaiting, StateFailed or StateUnknown; others are
	// refused with an error, since a store need not be able to find them.
	List(ctx context.Context, q Query) ([]Record, error)

	// Count returns the number of records in each state that has any. It may take
	// long where there are many.
	Count(ctx context.Context) (map[State]int, error)

	// Prune removes at most limit records whose retention is over and says how
	// many it removed. Unknown and claimed records are never pruned.
	Prune(ctx context.Context, limit int) (int, error)
}

// RecordID names a record: the namespace separates consumers that share a
// store, the key is the identity of the effect.
type RecordID struct {
	Namespace string
	Key       string

	// Stored says that both are in the form of StorageKey already. List returns
	// such ids for records whose key or namespace is kept as a hash, and only for
	// those.
	Stored bool
}

// StorageForm returns the namespace and the key as a store keeps them.
func (id RecordID) StorageForm() (namespace, key string) {
	if id.Stored {
		return id.Namespace, id.Key
	}
	return StorageKey(id.Namespace), StorageKey(id.Key)
}

// StoredID returns the id of a record that is kept under namespace and key.
func StoredID(namespace, key string) RecordID {
	hashed := strings.HasPrefix(namespace, storageHash) || strings.HasPrefix(key, storageHash)
	return RecordID{Namespace: namespace, Key: key, Stored: hashed}
}

// ClaimID is the fencing token of a claim: random for every acquisition, chosen
// by the client, so that a claim whose reply was lost can be repeated.
type ClaimID [16]byte

// NewClaimID returns a random claim id.
func NewClaimID() ClaimID {
	var id ClaimID
	rand.Read(id[:]) // never fails
	return id
}

// String returns the id in hexadecimal.
func (id ClaimID) String() string { return hex.EncodeToString(id[:]) }

// State is the state of a record.
type State uint8

// The states of a record.
const (
	StateAbsent    State = iota // no record: the key is new
	StateClaimed                // somebody has the right to act on it
	StateWaiting                // given back, to be tried again not before a time
	StateCompleted              // the effect is done
	StateFailed                 // given up; a dead letter
	StateUnknown                // nobody knows whether the effect is done; see Resolve
)

var stateNames = [...]string{"absent", "claimed", "waiting", "completed", "failed", "unknown"}

// String returns the state's name.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "invalid"
}

// ClaimRequest asks for the right to act on a key.
type ClaimRequest struct {
	RecordID
	Claim ClaimID       // NewClaimID for every acquisition, the same one when repeated
	Lease time.Duration // how long the claim holds without Extend; must be positive

	// Fingerprint tells payloads of one key apart. Empty means that it is not
	// compared. It is written with the first claim and checked by later ones,
	// before everything else.
	Fingerprint string

	// Owner is a name for people who look at the record. It decides nothing.
	Owner string

	// NoTakeover turns a claimed record whose lease is over into StateUnknown,
	// instead of handing it to this claim.
	NoTakeover bool
}

// ClaimStatus is what a claim met.
type ClaimStatus uint8

// What a claim can meet.
const (
	ClaimAcquired  ClaimStatus = iota + 1 // the key is ours to act on
	ClaimBusy                             // claimed by somebody else; Wait says how long the lease runs
	ClaimWaiting                          // given back and not due; Wait says how long
	ClaimCompleted                        // done before; Result is what was recorded
	ClaimUnknown                          // unknown whether it was done; a person or a Resolver decides
	ClaimMismatch                         // known with another fingerprint
)

var claimStatusNames = [...]string{"invalid", "acquired", "busy", "waiting", "completed", "unknown", "mismatch"}

// String returns the status's name.
func (s ClaimStatus) String() string {
	if int(s) < len(claimStatusNames) {
		return claimStatusNames[s]
	}
	return "invalid"
}

// ClaimAnswer is the store's answer to a ClaimRequest.
type ClaimAnswer struct {
	Status    ClaimStatus
	Fence     uint64        // grows with every acquisition of the key
	Attempt   int           // ClaimAcquired: acquisitions that count as attempts, this one included
	Takeovers int           // how often an owner of the key vanished: its lease ran out, and another claim met that
	Takeover  bool          // ClaimAcquired: this acquisition is such a takeover
	Wait      time.Duration // ClaimBusy, ClaimWaiting: how long to wait before asking again
	Result    []byte        // ClaimCompleted: the recorded result
	HasResult bool          // ClaimCompleted: whether one was recorded; an empty one counts
}

// Extension renews a lease to Lease from now.
type Extension struct {
	RecordID
	Claim ClaimID
	Lease time.Duration
}

// Completion records an effect as done.
type Completion struct {
	RecordID
	Claim     ClaimID
	Result    []byte
	HasResult bool // false: no result is recorded, even if Result is not nil
}

// ReleaseTo is where a released record goes.
type ReleaseTo uint8

// Where a release leads.
const (
	ToWaiting ReleaseTo = iota + 1 // may be claimed again after Delay
	ToFailed                       // given up; may be claimed again at once, by a redrive or a new delivery
	ToUnknown                      // the effect may have happened
)

// ReleaseRequest gives a claim back without an effect.
type ReleaseRequest struct {
	RecordID
	Claim     ClaimID
	To        ReleaseTo
	Delay     time.Duration // ToWaiting: not to be claimed before
	Uncounted bool          // ToWaiting: this acquisition was no attempt (a snooze, a shutdown)
	Reason    string        // for people
	Payload   []byte        // ToFailed, ToUnknown: what a redrive needs
}

// Resolution settles an unknown or failed record.
type Resolution struct {
	RecordID
	Fence     uint64 // of the record, as it was when somebody decided
	To        State  // StateCompleted, StateWaiting or StateFailed
	Result    []byte
	HasResult bool
}

// DefaultListLimit is how many records List returns when a Query doesn't say.
const DefaultListLimit = 100

// Query says which records to list.
type Query struct {
	State     State
	Namespace string   // only of this one; empty: of all
	After     RecordID // only those behind this one; the last of the page before
	Limit     int      // at most so many. DefaultListLimit when it is not positive
}

// Record is what a store knows of a key.
type Record struct {
	RecordID
	State       State
	Fence       uint64
	Attempt     int
	Takeovers   int
	Owner       string
	Fingerprint string
	Lease       time.Duration // StateClaimed: what is left of the lease; not positive when it is over
	Wait        time.Duration // StateWaiting: what is left of the backoff; not positive when it is due
	Retention   time.Duration // StateCompleted, StateFailed, StateWaiting: what is left before Prune may remove it
	Reason      string
	Payload     []byte
	Result      []byte
	HasResult   bool
}
