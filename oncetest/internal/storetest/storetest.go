// Package storetest holds the rules of docs/store-contract.md, each as a check of
// a store. Package oncetest lets tests and others run them.
package storetest

import (
	"context"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/oncepipe/oncepipe"
)

// Env is oncetest.StoreEnv.
type Env struct {
	Store     oncepipe.Store
	Advance   func(d time.Duration)
	Retention time.Duration
	MaxResult int
}

// T is what a rule reports to. A *testing.T is one.
type T interface {
	Helper()
	Context() context.Context
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any) // ends the goroutine of the rule
}

// Rule is one rule of the contract.
type Rule struct {
	Number string // in the document, for good
	Name   string
	check  func(s *subject)
}

// String returns the number and the name.
func (r Rule) String() string { return r.Number + " " + r.Name }

// Rules returns all rules, in the order of the document.
func Rules() []Rule {
	return slices.Concat(claimRules, tokenRules, releaseRules, resultRules, batchRules, keyRules, retentionRules, listRules, concurrencyRules)
}

// Races returns the rules that are about several callers at once.
func Races() []Rule { return slices.Clone(concurrencyRules) }

// Check holds a store that nobody has used yet to the rule. A panic of the store
// is a failure like any other.
func (r Rule) Check(t T, env Env) {
	t.Helper()
	s := &subject{T: t, Env: env}
	defer s.recovered()
	switch {
	case env.Store == nil:
		s.Fatalf("StoreEnv has no Store")
	case env.Advance == nil:
		s.Fatalf("StoreEnv has no Advance")
	case env.Retention < time.Hour:
		s.Fatalf("StoreEnv has a Retention of %v, want an hour at least", env.Retention)
	}
	r.check(s)
}

// The durations of the tests. None is a sum of others, so that no rule stands
// on an edge of time, and all are far above slack.
const (
	lease = 30 * time.Second
	delay = 50 * time.Second
	slack = 2 * time.Second // how far a remaining time may be off: clocks round, and may run by themselves
)

// subject is the store under test, with calls that end the test on an outage.
type subject struct {
	T
	Env
}

// recovered, which is to be deferred, makes a failure of a panic.
func (s *subject) recovered() {
	if p := recover(); p != nil {
		s.Errorf("the store panicked: %v\n%s", p, debug.Stack())
	}
}

func id(key string) oncepipe.RecordID { return oncepipe.RecordID{Namespace: "p/s", Key: key} }

// request is an ordinary claim of key.
func request(key string) oncepipe.ClaimRequest {
	return oncepipe.ClaimRequest{RecordID: id(key), Claim: oncepipe.NewClaimID(), Lease: lease}
}

func (s *subject) ctx() context.Context { return s.T.Context() }

func (s *subject) noError(what string, err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("%s: %v", what, err)
	}
}

// claim makes one claim and checks its status.
func (s *subject) claim(want oncepipe.ClaimStatus, req oncepipe.ClaimRequest) oncepipe.ClaimAnswer {
	s.Helper()
	answers := s.claims(req)
	if answers[0].Status != want {
		s.Fatalf("claim of %.40q: %v, want %v", req.Key, answers[0].Status, want)
	}
	return answers[0]
}

func (s *subject) claims(reqs ...oncepipe.ClaimRequest) []oncepipe.ClaimAnswer {
	s.Helper()
	answers, err := s.Store.Claim(s.ctx(), reqs)
	s.noError("claim", err)
	if len(answers) != len(reqs) {
		s.Fatalf("claim: %d answers to %d requests", len(answers), len(reqs))
	}
	return answers
}

// acquire claims key and returns its claim id.
func (s *subject) acquire(key string) oncepipe.ClaimID {
	s.Helper()
	req := request(key)
	s.claim(oncepipe.ClaimAcquired, req)
	return req.Claim
}

func (s *subject) extend(want bool, key string, claim oncepipe.ClaimID, d time.Duration) {
	s.Helper()
	held, err := s.Store.Extend(s.ctx(), []oncepipe.Extension{{RecordID: id(key), Claim: claim, Lease: d}})
	s.one("extend", want, held, err)
}

func (s *subject) complete(want bool, key string, claim oncepipe.ClaimID, result string) {
	s.Helper()
	s.completion(want, oncepipe.Completion{RecordID: id(key), Claim: claim, Result: []byte(result), HasResult: true})
}

func (s *subject) completion(want bool, c oncepipe.Completion) {
	s.Helper()
	held, err := s.Store.Complete(s.ctx(), []oncepipe.Completion{c})
	s.one("complete", want, held, err)
}

func (s *subject) release(want bool, r oncepipe.ReleaseRequest) {
	s.Helper()
	held, err := s.Store.Release(s.ctx(), []oncepipe.ReleaseRequest{r})
	s.one("release", want, held, err)
}

func (s *subject) releaseTo(want bool, to oncepipe.ReleaseTo, key string, claim oncepipe.ClaimID) {
	s.Helper()
	s.release(want, oncepipe.ReleaseRequest{RecordID: id(key), Claim: claim, To: to, Delay: delay, Reason: "why", Payload: []byte("what")})
}

// resolve is by somebody who has just looked at the record.
func (s *subject) resolve(want bool, r oncepipe.Resolution) {
	s.Helper()
	r.Fence = s.lookup(r.Key).Fence
	done, err := s.Store.Resolve(s.ctx(), []oncepipe.Resolution{r})
	s.one("resolve", want, done, err)
}

func (s *subject) forget(want bool, key string, force bool) {
	s.Helper()
	gone, err := s.Store.Forget(s.ctx(), []oncepipe.RecordID{id(key)}, force)
	s.one("forget", want, gone, err)
}

func (s *subject) prune(want, limit int) {
	s.Helper()
	n, err := s.Store.Prune(s.ctx(), limit)
	s.noError("prune", err)
	if n != want {
		s.Fatalf("prune(%d): %d, want %d", limit, n, want)
	}
}

func (s *subject) lookup(key string) oncepipe.Record {
	s.Helper()
	recs, err := s.Store.Lookup(s.ctx(), []oncepipe.RecordID{id(key)})
	s.noError("lookup", err)
	if len(recs) != 1 || recs[0].RecordID != id(key) {
		s.Fatalf("lookup of %.40q: %v", key, recs)
	}
	return recs[0]
}

func (s *subject) state(key string, want oncepipe.State) oncepipe.Record {
	s.Helper()
	rec := s.lookup(key)
	if rec.State != want {
		s.Fatalf("%.40q is %v, want %v", key, rec.State, want)
	}
	return rec
}

// one checks the answer to a batch of one.
func (s *subject) one(what string, want bool, got []bool, err error) {
	s.Helper()
	s.noError(what, err)
	if !slices.Equal(got, []bool{want}) {
		s.Fatalf("%s: %v, want %v", what, got, want)
	}
}

// near checks a remaining time.
func (s *subject) near(what string, got, want time.Duration) {
	s.Helper()
	if got < want-slack || got > want+slack {
		s.Errorf("%s: %v, want %v", what, got, want)
	}
}

// unchanged checks that f leaves the record of key as it is.
func (s *subject) unchanged(key string, f func()) {
	s.Helper()
	before := s.lookup(key)
	f()
	after := s.lookup(key)
	s.near("lease", after.Lease, before.Lease)
	s.near("wait", after.Wait, before.Wait)
	s.near("retention", after.Retention, before.Retention)
	for _, r := range []*oncepipe.Record{&before, &after} {
		r.Lease, r.Wait, r.Retention = 0, 0, 0
	}
	if !equalRecords(before, after) {
		s.Errorf("record changed:\n before %+v\n after  %+v", before, after)
	}
}

// equalRecords compares records; nil and empty bytes are the same.
func equalRecords(a, b oncepipe.Record) bool {
	same := string(a.Payload) == string(b.Payload) && string(a.Result) == string(b.Result)
	return same && a.RecordID == b.RecordID && a.State == b.State && a.Fence == b.Fence && a.Attempt == b.Attempt &&
		a.Takeovers == b.Takeovers && a.Owner == b.Owner && a.Fingerprint == b.Fingerprint && a.Lease == b.Lease &&
		a.Wait == b.Wait && a.Retention == b.Retention && a.Reason == b.Reason && a.HasResult == b.HasResult
}

// parallel runs f(0) to f(n-1) at once and waits for them.
func (s *subject) parallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			defer s.recovered()
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

// intoState brings key, which is new, into a state, with fingerprint, and
// returns the id of its latest claim.
func (s *subject) intoState(key, fingerprint string, state oncepipe.State) oncepipe.ClaimID {
	s.Helper()
	req := request(key)
	req.Fingerprint = fingerprint
	s.claim(oncepipe.ClaimAcquired, req)
	switch state {
	case oncepipe.StateClaimed:
	case oncepipe.StateCompleted:
		s.complete(true, key, req.Claim, "result")
	case oncepipe.StateWaiting:
		s.releaseTo(true, oncepipe.ToWaiting, key, req.Claim)
	case oncepipe.StateFailed:
		s.releaseTo(true, oncepipe.ToFailed, key, req.Claim)
	case oncepipe.StateUnknown:
		s.releaseTo(true, oncepipe.ToUnknown, key, req.Claim)
	default:
		s.Fatalf("no way into %v", state)
	}
	return req.Claim
}

var presentStates = []oncepipe.State{
	oncepipe.StateClaimed, oncepipe.StateWaiting, oncepipe.StateCompleted, oncepipe.StateFailed, oncepipe.StateUnknown,
}
