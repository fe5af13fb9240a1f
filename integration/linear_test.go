package integration

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/integration/internal/servers/servertest"
	"github.com/oncepipe/oncepipe/store/memstore"
	"github.com/oncepipe/oncepipe/store/pgxstore"
	"github.com/oncepipe/oncepipe/store/redisstore"
	"github.com/oncepipe/oncepipe/store/sqlstore"
)

// A history is of so many callers, and has so many rounds, in which each of them
// makes so many calls. Between the rounds the clock goes on while nobody calls.
const (
	linearHistories = 100
	linearCallers   = 6
	linearRounds    = 4
	linearCalls     = 2
)

// processes are stores on one database, whose clock stands still but for advance.
// The last of three belongs to one caller alone, who gives up calls: in a process
// where calls are committed together, those behind one that is given up are made
// again, and what is made twice is no single step.
type processes struct {
	stores  []oncepipe.Store
	advance func(time.Duration)
}

const linearProcesses = 3

func TestLinearizable(t *testing.T) {
	forBackends(t, backends, func(t *testing.T, b backend) {
		p := b.place(t)
		of := processes{advance: p.clocked(t)}
		for range linearProcesses {
			of.stores = append(of.stores, openStore(t, p.open(t, 0), sqlstore.Config{Dialect: b.dialect, Clock: testClock}))
		}
		linearizable(t, of)
	})
}

func TestLinearizable_Pgx(t *testing.T) {
	dsn := servertest.PostgresSchema(t)
	of := processes{advance: place{"pgx", dsn}.clocked(t)}
	for range linearProcesses {
		of.stores = append(of.stores, pgxStore(t, pgxPool(t, dsn, 8), pgxstore.Config{Clock: testClock}))
	}
	linearizable(t, of)
}

func TestLinearizable_Redis(t *testing.T) {
	dsn, prefix := servertest.RedisPrefix(t)
	var of processes
	for range linearProcesses {
		st, advance := redisStore(t, redisClient(t, dsn), redisstore.Config{Prefix: prefix})
		of.stores, of.advance = append(of.stores, st), advance // of one clock
	}
	linearizable(t, of)
}

func TestLinearizable_Memstore(t *testing.T) {
	linearizable(t, inMemory(func(st oncepipe.Store) oncepipe.Store { return st }))
}

// inMemory is the reference, as wrap leaves it.
func inMemory(wrap func(oncepipe.Store) oncepipe.Store) processes {
	var past atomic.Int64
	st := wrap(memstore.New(memstore.Config{Now: func() time.Time { return time.Unix(0, past.Load()) }}))
	return processes{[]oncepipe.Store{st}, func(d time.Duration) { past.Add(int64(d)) }}
}

// linearizable checks histories, and that they were worth it.
func linearizable(t *testing.T, of processes) {
	t.Helper()
	seed := rand.Uint64()
	var sum tally
	for n := range uint64(linearHistories) {
		h := newLinearHistory(t.Context(), of, fmt.Sprint("history-", n), seed+n)
		h.run()
		for _, err := range h.errs {
			t.Errorf("history %d of seed %d: %v", n, seed, err)
		}
		result, info := h.check()
		if result != porcupine.Ok {
			t.Errorf("history %d of seed %d is linearizable: %s; see %s", n, seed, result, visualized(t, info))
		}
		if t.Failed() {
			return
		}
		sum.add(h.ops)
	}
	t.Logf("%d histories, none of another order than the contract's: %+v", linearHistories, sum)
	if min(sum.Acquired, sum.Takeovers, sum.Busy, sum.Waiting, sum.Completed, sum.Resolved, sum.Forgotten, sum.Refused, sum.Overlapping) == 0 {
		t.Errorf("the histories don't show everything: %+v", sum)
	}
}

// visualized writes what porcupine draws of a history to a file.
func visualized(t *testing.T, info porcupine.LinearizationInfo) string {
	t.Helper()
	f, err := os.CreateTemp("", "oncepipe-history-*.html")
	if err != nil {
		t.Fatal(err)
	}
	if err := porcupine.Visualize(cellModel, info, f); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	return f.Name()
}

// asked is an item of a batch, an operation of its own: a batch promises no more.
// That the items of one key act in their order is left to oncetest.Store. The output
// is what was said, or nil where the call failed, so that nobody knows whether it
// acted, and when.
type asked struct {
	key string
	req any
	at  time.Duration // of the store's clock, when it was asked
}

var cellModel = (&porcupine.NondeterministicModel{
	Partition: func(ops []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, op := range ops {
			key := op.Input.(asked).key
			byKey[key] = append(byKey[key], op)
		}
		var parts [][]porcupine.Operation
		for _, key := range linearKeys {
			parts = append(parts, byKey[key])
		}
		return parts
	},
	Init: func() []any { return []any{cell{}} },
	Step: func(state, input, output any) (after []any) {
		c, in := state.(cell), input.(asked)
		if output != nil {
			if next, answer := c.do(in.req); output == answer {
				after = append(after, next)
			}
			return after
		}
		// A call that was given up may have read the clock long before it acts.
		for read := c; read.now >= in.at; read.now -= lockstepTick {
			next, _ := read.do(in.req)
			next.now = c.now
			after = append(after, next)
		}
		return after
	},
	DescribeOperation: func(input, output any) string {
		req := input.(asked).req
		return fmt.Sprintf("%T%+v → %+v", req, req, output)
	},
	DescribeState: func(state any) string { return fmt.Sprintf("%+v", state) },
}).ToModel()

var linearKeys = []string{"a", "b", "c"}

// linearHistory is what callers asked and heard, in moments that only count up.
type linearHistory struct {
	ctx       context.Context
	of        processes
	namespace string
	seed      uint64
	moment    atomic.Int64
	now       time.Duration // what the store's clock has gone on

	mu      sync.Mutex
	clients int // every call that failed ends one, as a crash does
	ops     []porcupine.Operation
	errs    []error
	latest  map[string]oncepipe.ClaimID // by key: who acquired it last, as far as was heard
	fence   map[string]uint64
}

func newLinearHistory(ctx context.Context, of processes, namespace string, seed uint64) *linearHistory {
	return &linearHistory{
		ctx: ctx, of: of, namespace: namespace, seed: seed, clients: linearCallers + 1,
		latest: map[string]oncepipe.ClaimID{}, fence: map[string]uint64{},
	}
}

func (h *linearHistory) check() (porcupine.CheckResult, porcupine.LinearizationInfo) {
	return porcupine.CheckOperationsVerbose(cellModel, h.ops, time.Minute)
}

func (h *linearHistory) run() {
	callers := make([]*caller, linearCallers)
	for i := range callers {
		callers[i] = &caller{
			linearHistory: h, client: i, store: h.of.stores[i%max(1, len(h.of.stores)-1)],
			rnd: rand.New(rand.NewPCG(h.seed, uint64(i))), own: map[string]oncepipe.ClaimID{},
		}
	}
	quitter := callers[0]
	quitter.store, quitter.quits = h.of.stores[len(h.of.stores)-1], true
	for round := range linearRounds {
		var wg sync.WaitGroup
		for _, c := range callers {
			wg.Go(func() {
				for range linearCalls {
					c.call()
				}
			})
		}
		wg.Wait()
		h.pass(lockstepTick * time.Duration(1+round%2)) // the ends of leases are between
	}
}

// pass puts the clock forward: an operation on every key.
func (h *linearHistory) pass(d time.Duration) {
	called := h.moment.Add(1)
	h.of.advance(d)
	h.now += d
	returned := h.moment.Add(1)
	for _, key := range linearKeys {
		h.ops = append(h.ops, porcupine.Operation{
			ClientId: linearCallers, Input: asked{key, advance(d), h.now - d}, Call: called, Output: said{}, Return: returned,
		})
	}
}

// caller makes one call after the other.
type caller struct {
	*linearHistory
	client int
	store  oncepipe.Store
	quits  bool
	rnd    *rand.Rand
	own    map[string]oncepipe.ClaimID
}

// call makes a call and writes it down.
func (c *caller) call() {
	reqs := c.draw()
	ctx, cancel := context.WithCancel(c.ctx)
	if c.quits && c.rnd.IntN(2) == 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(c.rnd.IntN(int(2*time.Millisecond))))
	}
	called := c.moment.Add(1)
	runtime.Gosched() // a store in memory would be done before the others call
	answers, err := ask(ctx, c.store, reqs)
	returned := c.moment.Add(1)
	deadline, limited := ctx.Deadline()
	gone := limited && !time.Now().Before(deadline)
	cancel()

	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && !gone || err == nil && len(answers) != len(reqs) {
		c.errs = append(c.errs, fmt.Errorf("%T: %d answers to %d requests, %w", reqs[0], len(answers), len(reqs), err))
	}
	for i, req := range reqs {
		op := porcupine.Operation{ClientId: c.client, Input: asked{keyOf(req), req, c.now}, Call: called, Return: math.MaxInt64}
		if err == nil {
			op.Output, op.Return = answers[i], returned
			c.heard(req, answers[i])
		}
		c.ops = append(c.ops, op)
	}
	if err != nil {
		c.client = c.clients
		c.clients++
	}
}

// keyOf is of requests that embed a RecordID.
func keyOf(req any) string {
	_, key := req.(interface{ StorageForm() (string, string) }).StorageForm()
	return key
}

// heard keeps what later calls go by.
func (h *linearHistory) heard(req any, s said) {
	if claim, ok := req.(oncepipe.ClaimRequest); ok && s.status == oncepipe.ClaimAcquired {
		h.latest[claim.Key] = claim.Claim
	}
	h.fence[keyOf(req)] = max(h.fence[keyOf(req)], s.fence)
}

var linearCallsMix = slices.Concat(
	slices.Repeat([]string{"claim"}, 9), slices.Repeat([]string{"release"}, 5), slices.Repeat([]string{"extend", "resolve", "lookup"}, 3),
	[]string{"complete", "complete", "forget"},
)

// draw makes up a batch.
func (c *caller) draw() []any {
	kind := linearCallsMix[c.rnd.IntN(len(linearCallsMix))]
	force := c.rnd.IntN(4) == 0
	reqs := make([]any, 1+c.rnd.IntN(3))
	for i := range reqs {
		reqs[i] = c.request(kind, force)
	}
	return reqs
}

func (c *caller) request(kind string, force bool) any {
	id := oncepipe.RecordID{Namespace: c.namespace, Key: linearKeys[c.rnd.IntN(len(linearKeys))]}
	d := time.Second * time.Duration([]int{5, 15, 25}[c.rnd.IntN(3)])
	claim := c.claimOf(id.Key)
	switch kind {
	case "claim":
		if c.rnd.IntN(4) != 0 { // else a repetition
			claim = c.newClaim()
		}
		c.own[id.Key] = claim
		fingerprint := []string{"", "", "", "", "", "x", "x", "y"}[c.rnd.IntN(8)]
		return oncepipe.ClaimRequest{RecordID: id, Claim: claim, Lease: d, NoTakeover: c.rnd.IntN(4) == 0, Fingerprint: fingerprint}
	case "extend":
		return oncepipe.Extension{RecordID: id, Claim: claim, Lease: d}
	case "complete":
		result := fmt.Append(nil, c.client, c.rnd.IntN(100))
		return oncepipe.Completion{RecordID: id, Claim: claim, Result: result, HasResult: c.rnd.IntN(2) == 0}
	case "release":
		return oncepipe.ReleaseRequest{
			RecordID: id, Claim: claim, To: oncepipe.ReleaseTo(1 + c.rnd.IntN(3)),
			Delay: d * time.Duration(c.rnd.IntN(2)), Uncounted: c.rnd.IntN(2) == 0,
		}
	case "resolve":
		to := []oncepipe.State{oncepipe.StateCompleted, oncepipe.StateWaiting, oncepipe.StateFailed}[c.rnd.IntN(3)]
		return oncepipe.Resolution{RecordID: id, Fence: c.fenceOf(id.Key), To: to, Result: []byte("by hand"), HasResult: true}
	case "forget":
		return forget{id, force}
	default:
		return lookup{id}
	}
}

func (c *caller) newClaim() (id oncepipe.ClaimID) {
	for i := range id {
		id[i] = byte(c.rnd.Uint32())
	}
	return id
}

// claimOf is mostly the one that holds key, and sometimes the caller's own.
func (c *caller) claimOf(key string) oncepipe.ClaimID {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.latest[key]
	if own, ok := c.own[key]; ok && c.rnd.IntN(3) == 0 || id == (oncepipe.ClaimID{}) {
		id = own
	}
	if id == (oncepipe.ClaimID{}) {
		id = c.newClaim()
	}
	return id
}

// fenceOf is mostly the one that was seen last.
func (c *caller) fenceOf(key string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fence[key] + uint64(c.rnd.IntN(4)/3)
}

// tally is what happened in histories.
type tally struct {
	Requests, Unanswered, Overlapping                       int
	Acquired, Takeovers, Busy, Waiting, Completed, Mismatch int
	Held, Refused, Resolved, Forgotten                      int
}

func (sum *tally) add(ops []porcupine.Operation) {
	for i, op := range ops {
		in := op.Input.(asked)
		sum.Requests++
		if slices.ContainsFunc(ops[:i], func(o porcupine.Operation) bool {
			return o.Input.(asked).key == in.key && o.Call < op.Return && op.Call < o.Return
		}) {
			sum.Overlapping++
		}
		if op.Output == nil {
			sum.Unanswered++
		} else {
			sum.answer(in.req, op.Output.(said))
		}
	}
}

func (sum *tally) answer(req any, s said) {
	switch req.(type) {
	case oncepipe.ClaimRequest:
		if s.takeover {
			sum.Takeovers++
		}
		if n := map[oncepipe.ClaimStatus]*int{
			oncepipe.ClaimAcquired: &sum.Acquired, oncepipe.ClaimBusy: &sum.Busy, oncepipe.ClaimWaiting: &sum.Waiting,
			oncepipe.ClaimCompleted: &sum.Completed, oncepipe.ClaimMismatch: &sum.Mismatch,
		}[s.status]; n != nil {
			*n++
		}
	case oncepipe.Resolution:
		if s.yes {
			sum.Resolved++
		}
	case forget:
		if s.yes {
			sum.Forgotten++
		}
	case oncepipe.Extension, oncepipe.Completion, oncepipe.ReleaseRequest:
		if s.yes {
			sum.Held++
		} else {
			sum.Refused++
		}
	}
}
