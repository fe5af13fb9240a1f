package oncepipe_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
)

// list returns the records of a state, of all namespaces.
func (s *faultyStore) list(t *testing.T, state oncepipe.State) (all []oncepipe.Record) {
	t.Helper()
	for r, err := range oncepipe.Records(context.Background(), s.mem, oncepipe.Query{State: state, Limit: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// leave claims a record and releases it so.
func (s *faultyStore) leave(t *testing.T, ns, key string, rel oncepipe.ReleaseRequest) oncepipe.Record {
	t.Helper()
	rel.RecordID, rel.Claim = oncepipe.RecordID{Namespace: ns, Key: key}, oncepipe.NewClaimID()
	_, err1 := s.mem.Claim(context.Background(), []oncepipe.ClaimRequest{{RecordID: rel.RecordID, Claim: rel.Claim, Lease: time.Minute}})
	_, err2 := s.mem.Release(context.Background(), []oncepipe.ReleaseRequest{rel})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return s.recordOf(t, rel.RecordID)
}

// fail leaves a letter.
func (s *faultyStore) fail(t *testing.T, ns, key, payload string) oncepipe.Record {
	t.Helper()
	return s.leave(t, ns, key, oncepipe.ReleaseRequest{To: oncepipe.ToFailed, Reason: "was no good", Payload: []byte(payload)})
}

func letterOf(key string, reason oncepipe.Reason) oncepipe.DeadLetter {
	return oncepipe.DeadLetter{Pipeline: "shop", Stage: "charge", Key: key, Value: map[string]int{"cents": 5}, Reason: reason, Err: errBroken}
}

const shop = "shop/charge"

// What becomes of a letter depends on what is known of its key.
func TestLettersMeetRecords(t *testing.T) {
	for _, c := range []struct {
		name  string
		given func(t *testing.T, s *faultyStore)
		kept  string         // namespace
		is    error          // of the refusal
		state oncepipe.State // of the key's own record
	}{
		{name: "none", given: func(*testing.T, *faultyStore) {}, kept: shop, state: failed},
		{name: "failed", given: func(t *testing.T, s *faultyStore) { s.fail(t, shop, "k", "old") }, kept: shop, state: failed},
		{name: "waiting", given: func(t *testing.T, s *faultyStore) {
			s.leave(t, shop, "k", oncepipe.ReleaseRequest{To: oncepipe.ToWaiting})
		}, kept: shop, state: failed},
		{name: "put off", given: func(t *testing.T, s *faultyStore) {
			s.leave(t, shop, "k", oncepipe.ReleaseRequest{To: oncepipe.ToWaiting, Delay: time.Hour})
		}, kept: "shop/charge/waiting", state: waiting},
		{name: "claimed", given: func(t *testing.T, s *faultyStore) { s.abandon(t, shop, "k") }, is: oncepipe.ErrBusy, state: oncepipe.StateClaimed},
		{name: "claimed, lease over", given: func(t *testing.T, s *faultyStore) {
			s.abandon(t, shop, "k")
			time.Sleep(time.Hour)
		}, kept: "shop/charge/unknown", state: unknown},
		{name: "completed", given: func(t *testing.T, s *faultyStore) { s.complete(t, shop, "k", nil) }, kept: "shop/charge/completed", state: completed},
		{name: "unknown", given: func(t *testing.T, s *faultyStore) {
			s.leave(t, shop, "k", oncepipe.ReleaseRequest{To: oncepipe.ToUnknown, Payload: []byte("theirs")})
		}, state: unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFaulty()
				c.given(t, s)
				err := oncepipe.DeadLettersIn(s, nil)(t.Context(), letterOf("k", oncepipe.ReasonExhausted))
				if !errors.Is(err, c.is) {
					t.Errorf("error %v, want %v", err, c.is)
				}
				s.recordIn(t, shop, "k", c.state)
				if c.kept != "" {
					r := s.recordIn(t, c.kept, "k", failed)
					if string(r.Payload) != `{"cents":5}` || r.Reason != "exhausted: broken" {
						t.Errorf("kept %+v", r)
					}
				}
				if n := len(s.list(t, failed)); n != 0 && c.kept == "" || n > 1 {
					t.Errorf("%d letters", n)
				}
			})
		})
	}
}

func (s *faultyStore) recordIn(t *testing.T, ns, key string, state oncepipe.State) oncepipe.Record {
	t.Helper()
	r := s.recordOf(t, oncepipe.RecordID{Namespace: ns, Key: key})
	if r.State != state {
		t.Errorf("record %s of %s is %v, want %v: %+v", key, ns, r.State, state, r)
	}
	return r
}

// A letter that must not take the record of its key is kept beside it.
func TestLettersBesideTheKey(t *testing.T) {
	s := newFaulty()
	keep := oncepipe.DeadLettersIn(s, nil)
	s.fail(t, shop, "k", "the first payload")
	for range 2 { // again: no further letter
		for _, l := range []oncepipe.DeadLetter{letterOf("k", oncepipe.ReasonMismatch), letterOf("", oncepipe.ReasonNoKey)} {
			if err := keep(t.Context(), l); err != nil {
				t.Fatal(err)
			}
		}
	}
	if r := s.recordIn(t, shop, "k", failed); string(r.Payload) != "the first payload" {
		t.Errorf("another payload took the key's record: %+v", r)
	}
	hash, err := oncepipe.ContentKey(map[string]int{"cents": 5})
	if err != nil {
		t.Fatal(err)
	}
	s.recordIn(t, "shop/charge/mismatch", oncepipe.Key("k", hash), failed)
	s.recordIn(t, "shop/charge/no key", hash, failed)
	if n := len(s.list(t, failed)); n != 3 {
		t.Errorf("%d letters, want 3", n)
	}
}

// A value that can't be encoded doesn't keep its letter from being written.
func TestLettersWithoutPayload(t *testing.T) {
	s := newFaulty()
	bad := letterOf("k", oncepipe.ReasonPermanent)
	bad.Value = map[string]any{"fn": make(chan int), "name": "Mary"}
	panics := func(oncepipe.DeadLetter) ([]byte, error) { panic("no words") }
	if err := oncepipe.DeadLettersIn(s, nil)(t.Context(), bad); err != nil {
		t.Fatal(err)
	}
	if r := s.recordIn(t, shop, "k", failed); len(r.Payload) > 0 || !strings.Contains(r.Reason, "unsupported type") || !strings.Contains(r.Reason, "Mary") {
		t.Errorf("kept %+v", r)
	}
	for range 2 {
		if err := oncepipe.DeadLettersIn(s, panics)(t.Context(), letterOf("", oncepipe.ReasonNoKey)); err != nil {
			t.Fatal(err)
		}
	}
	if letters := s.list(t, failed); len(letters) != 3 || !strings.Contains(letters[2].Reason, "no words") {
		t.Errorf("kept %+v, want one letter for each item that nothing is known of", letters)
	}
	unknownYet := letterOf("u", oncepipe.ReasonUnknown)
	unknownYet.Value = make(chan int)
	s.leave(t, shop, "u", oncepipe.ReleaseRequest{To: oncepipe.ToUnknown})
	if err := oncepipe.DeadLettersIn(s, nil)(t.Context(), unknownYet); err != nil {
		t.Fatal(err)
	}
	s.recordIn(t, "shop/charge/unknown", "u", oncepipe.StateAbsent) // there is nothing to keep
}

func TestLettersOwnEncoding(t *testing.T) {
	s := newFaulty()
	keep := oncepipe.DeadLettersIn(s, func(l oncepipe.DeadLetter) ([]byte, error) {
		return fmt.Appendf(nil, "%s: %v", l.Stage, l.Value), nil
	})
	if err := keep(t.Context(), letterOf("k", oncepipe.ReasonMismatch)); err != nil {
		t.Fatal(err)
	}
	if l := s.list(t, failed); len(l) != 1 || string(l[0].Payload) != "charge: map[cents:5]" {
		t.Errorf("kept %+v", l)
	}
}

// When the letter can't be written the item goes back to its source, and the
// record is nobody's.
func TestLettersStoreDown(t *testing.T) {
	for _, c := range []struct {
		before, after string
		letters       int
	}{{before: "claim"}, {after: "claim"}, {before: "release"}, {after: "release", letters: 1}} {
		t.Run(c.before+"/"+c.after, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFaulty()
				s.before, s.after = failCalls(c.before, 3), failCalls(c.after, 3)
				r := newRig(t, func(cfg *oncepipe.Config) { cfg.DeadLetters = oncepipe.DeadLettersIn(s, nil) })
				r.b.redeliver = true
				oncepipe.Sink(r.in, "work", r.handler(func(context.Context, brokerMsg, int) error { return oncepipe.Permanent(errBroken) }))
				r.start()
				r.b.send("k")
				time.Sleep(20 * time.Second)
				if n := len(s.list(t, failed)); n != c.letters {
					t.Errorf("%d letters, want %d", n, c.letters)
				}
				time.Sleep(time.Minute)
				r.b.end()
				r.finish()
				r.wantOutcomes("k", returned, dead)
				if letters := s.list(t, failed); len(letters) != 1 || letters[0].Key != "k" {
					t.Errorf("kept %+v", letters)
				}
			})
		})
	}
}

// Once keeps the letter in its own record, and DeadLettersIn writes the same one.
func TestLettersAreTheRecordsOfOnce(t *testing.T) {
	for name, fails := range map[string]error{"permanent": oncepipe.Permanent(errBroken), "exhausted": errBroken} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFaulty()
				r := newRig(t, func(cfg *oncepipe.Config) { cfg.DeadLetters = oncepipe.DeadLettersIn(s, nil) })
				oncepipe.Sink(r.in, "work", oncepipe.OnceDo(s, "work", func(context.Context, brokerMsg) error { return fails }))
				r.run("k")
				r.wantOutcomes("k", dead)
				var m brokerMsg
				letters := s.list(t, failed)
				if len(letters) != 1 || json.Unmarshal(letters[0].Payload, &m) != nil || m.Key != "k" {
					t.Errorf("letters %+v", letters)
				}
				if len(s.list(t, waiting))+len(s.list(t, unknown)) > 0 {
					t.Error("there are other records")
				}
			})
		})
	}
}

// A record is redriven only as it was looked at, and only when there is
// something to run.
func TestRedriveTakesWhatItSaw(t *testing.T) {
	s := newFaulty()
	changed := s.fail(t, "ns", "changed", "v")
	s.fail(t, "ns", "changed", "w")
	undecided := s.leave(t, "ns", "unknown", oncepipe.ReleaseRequest{To: oncepipe.ToUnknown, Payload: []byte("v")})
	recs := []oncepipe.Record{
		s.fail(t, "ns", "good", "v"),
		changed,
		s.fail(t, "ns", "empty", ""),
		undecided,
		s.leave(t, "ns", "waiting", oncepipe.ReleaseRequest{To: oncepipe.ToWaiting, Payload: []byte("v")}),
	}
	done, err := oncepipe.Redrive(t.Context(), s, recs)
	if err != nil || !slices.Equal(done, []bool{true, false, false, true, false}) {
		t.Errorf("redriven %v, %v", done, err)
	}
	for key, state := range map[string]oncepipe.State{"good": waiting, "changed": failed, "empty": failed, "unknown": waiting} {
		if r := s.recordIn(t, "ns", key, state); state == waiting && (r.Attempt != 0 || string(r.Payload) != "v") {
			t.Errorf("%+v", r)
		}
	}
	if done, err = oncepipe.Redrive(t.Context(), s, recs[:1]); err != nil || done[0] {
		t.Errorf("redriven twice: %v, %v", done, err)
	}
	s.before = failCalls("resolve", 100)
	if done, err = oncepipe.Redrive(t.Context(), s, []oncepipe.Record{s.fail(t, "ns", "late", "v")}); !errors.Is(err, errLine) || done[0] {
		t.Errorf("redriven %v, %v", done, err)
	}
}

// Every letter is redriven once, whatever the pages and whatever fails again.
func TestRedriveAllMeetsEachOnce(t *testing.T) {
	s := newFaulty()
	for i := range 250 {
		s.fail(t, fmt.Sprint("ns", i%3), fmt.Sprintf("%04d", i), "v")
	}
	s.fail(t, "ns1", "empty", "")
	failAgain := func() {
		for _, r := range s.list(t, waiting) {
			s.fail(t, r.Namespace, r.Key, "again")
		}
	}
	s.before = func(_ context.Context, op string, _ int) error {
		if op == "resolve" { // the letters of the page before are there again
			failAgain()
		}
		return nil
	}
	n, left, err := oncepipe.RedriveAll(t.Context(), s, "ns1")
	if n != 83 || left != 1 || err != nil {
		t.Errorf("redriven %d, left %d, %v", n, left, err)
	}
	failAgain()
	n, left, err = oncepipe.RedriveAll(t.Context(), s, "")
	if n != 250 || left != 1 || err != nil {
		t.Errorf("redriven %d, left %d, %v", n, left, err)
	}
	s.before = failCalls("list", 100)
	if _, _, err := oncepipe.RedriveAll(t.Context(), s, ""); !errors.Is(err, errLine) {
		t.Errorf("error %v", err)
	}
	s.before = failCalls("resolve", 100)
	if _, _, err := oncepipe.RedriveAll(t.Context(), s, ""); !errors.Is(err, errLine) {
		t.Errorf("error %v", err)
	}
}

// A listing can be left in the middle, and ends with an error.
func TestRecordsEnd(t *testing.T) {
	s := newFaulty()
	for i := range 5 {
		s.fail(t, "ns", fmt.Sprint(i), "v")
	}
	s.before = func(_ context.Context, op string, n int) error {
		if op == "list" && n == 2 {
			return errLine
		}
		return nil
	}
	var seen []string
	var ended error
	for r, err := range oncepipe.Records(t.Context(), s, oncepipe.Query{State: failed, Limit: 2}) {
		if ended = err; err == nil {
			seen = append(seen, r.Key)
		}
	}
	if !slices.Equal(seen, []string{"0", "1"}) || !errors.Is(ended, errLine) {
		t.Errorf("seen %v, %v", seen, ended)
	}
	for r := range oncepipe.Records(t.Context(), memstoreWith(t, "a", "b"), oncepipe.Query{State: failed}) {
		seen = append(seen, r.Key)
		break
	}
	if seen[2] != "a" || len(seen) != 3 {
		t.Errorf("seen %v", seen)
	}
}

func memstoreWith(t *testing.T, keys ...string) oncepipe.Store {
	s := newFaulty()
	for _, key := range keys {
		s.fail(t, "ns", key, "v")
	}
	return s
}

// An item that can't be finished any more, since its key is done without a result,
// is a letter and doesn't come again and again.
func TestLettersOfWhatIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty()
		r := newRig(t, func(c *oncepipe.Config) { c.DeadLetters = oncepipe.DeadLettersIn(s, nil) })
		oncepipe.Discard(oncepipe.Stage(r.in, "print", oncepipe.Once(s, "print", func(context.Context, brokerMsg) (func(), error) {
			return nil, nil
		})))
		r.run("k", "k")
		r.wantOutcomes("k", done, dead)
		s.recordIn(t, "rig/print", "k", completed)
		s.recordIn(t, "rig/print/completed", "k", failed)
	})
}

// The letters of a Dedup bear the namespace that it was given.
func TestLettersOfADedupWithNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty()
		s.leave(t, "orders/dedup", "k", oncepipe.ReleaseRequest{To: oncepipe.ToUnknown})
		r := newRig(t)
		r.work(r.dedup(oncepipe.WithStore(s), oncepipe.Namespace("orders")), succeeds)
		r.run("k")
		if l := r.letter(0); l.Namespace != "orders" {
			t.Errorf("%+v", l)
		}
	})
}
