package storetest

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/oncepipe/oncepipe"
)

var concurrencyRules = []Rule{
	{"S9.1", "R13 of many claims at once one is acquired", func(s *subject) {
		for round := range 10 {
			key := fmt.Sprint("k", round)
			var won, busy atomic.Int32
			s.parallel(16, func(int) {
				switch a, ok := s.tryClaim(request(key)); {
				case !ok:
				case a.Status == oncepipe.ClaimAcquired:
					won.Add(1)
				case a.Status == oncepipe.ClaimBusy:
					busy.Add(1)
				}
			})
			if won.Load() != 1 || busy.Load() != 15 {
				s.Errorf("round %d: %d acquired, %d busy", round, won.Load(), busy.Load())
			}
		}
	}},
	{"S9.2", "R13 of many takeovers at once one is acquired", func(s *subject) {
		for round := range 5 {
			key := fmt.Sprint("k", round)
			old := s.acquire(key)
			s.Advance(2 * lease)
			var won atomic.Int32
			s.parallel(16, func(int) {
				if a, ok := s.tryClaim(request(key)); ok && a.Status == oncepipe.ClaimAcquired && a.Takeover {
					won.Add(1)
				}
			})
			if rec := s.lookup(key); won.Load() != 1 || rec.Takeovers != 1 {
				s.Errorf("round %d: %d acquired, record %+v", round, won.Load(), rec)
			}
			s.refused(key, old)
		}
	}},
	{"S9.3", "I3 of a late completion and a takeover one succeeds", func(s *subject) {
		for round := range 20 {
			key := fmt.Sprint("k", round)
			old := s.acquire(key)
			s.Advance(2 * lease)
			var completed, taken bool
			s.parallel(2, func(i int) {
				if i == 0 {
					held, err := s.Store.Complete(s.ctx(), []oncepipe.Completion{{RecordID: id(key), Claim: old}})
					if err != nil {
						s.Errorf("complete: %v", err)
						return
					}
					completed = held[0]
					return
				}
				a, _ := s.tryClaim(request(key))
				taken = a.Status == oncepipe.ClaimAcquired
			})
			if completed == taken {
				s.Errorf("round %d: completed %v, taken over %v", round, completed, taken)
			}
		}
	}},
	{"S9.4", "R52 nothing is acquired without a record behind it", func(s *subject) {
		const writers, rounds, keys = 64, 12, 8
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			defer s.recovered()
			for n := range 20_000 { // bounded: in a bubble a writer that sleeps waits for its end
				select {
				case <-stop:
					return
				default:
				}
				_, err := s.Store.Forget(s.ctx(), []oncepipe.RecordID{id(fmt.Sprint("k", n%keys))}, false)
				if err != nil {
					s.Errorf("forget: %v", err)
					return
				}
				if _, err := s.Store.Prune(s.ctx(), 10); err != nil {
					s.Errorf("prune: %v", err)
					return
				}
			}
		}()
		var acquired atomic.Int32
		s.parallel(writers, func(i int) {
			for n := range rounds {
				req := request(fmt.Sprint("k", (i+n)%keys))
				a, ok := s.tryClaim(req)
				if !ok {
					return
				}
				if a.Status != oncepipe.ClaimAcquired {
					continue
				}
				acquired.Add(1)
				// A live claim is not forgotten and not pruned: it must still be there.
				held, err := s.Store.Complete(s.ctx(), []oncepipe.Completion{{RecordID: req.RecordID, Claim: req.Claim}})
				if err != nil || !held[0] {
					s.Errorf("acquired %s, and its completion is %v, %v", req.Key, held, err)
					return
				}
			}
		})
		close(stop)
		<-stopped
		if acquired.Load() < keys {
			s.Errorf("acquired %d, want at least %d", acquired.Load(), keys)
		}
	}},
	{"S9.5", "R59 batches in opposite orders don't block each other", func(s *subject) {
		for round := range 25 {
			var keys []string
			for n := range 16 {
				keys = append(keys, fmt.Sprintf("r%d-k%d", round, n))
			}
			var won atomic.Int32
			s.parallel(4, func(i int) {
				mine := slices.Clone(keys)
				if i%2 == 1 {
					slices.Reverse(mine)
				}
				var reqs []oncepipe.ClaimRequest
				for _, key := range mine {
					reqs = append(reqs, request(key))
				}
				answers, err := s.Store.Claim(s.ctx(), reqs)
				if err != nil {
					s.Errorf("claim: %v", err)
					return
				}
				var completions []oncepipe.Completion
				for n, a := range answers {
					if a.Status == oncepipe.ClaimAcquired {
						won.Add(1)
						completions = append(completions, oncepipe.Completion{RecordID: reqs[n].RecordID, Claim: reqs[n].Claim})
					}
				}
				if held, err := s.Store.Complete(s.ctx(), completions); err != nil || slices.Contains(held, false) {
					s.Errorf("complete: %v, %v", held, err)
				}
			})
			if int(won.Load()) != len(keys) {
				s.Errorf("round %d: %d acquired, want %d", round, won.Load(), len(keys))
			}
		}
	}},
	{"S9.6", "callers that leave don't disturb the others", func(s *subject) {
		const callers = 24
		s.parallel(callers, func(i int) {
			ctx, cancel := context.WithCancel(s.ctx())
			defer cancel()
			if i%3 == 0 {
				go cancel()
			}
			key := fmt.Sprint("k", i)
			answers, err := s.Store.Claim(ctx, []oncepipe.ClaimRequest{request(key)})
			if err == nil && answers[0].Status != oncepipe.ClaimAcquired {
				s.Errorf("%s: %v", key, answers[0].Status)
			}
			if err != nil && ctx.Err() == nil {
				s.Errorf("%s: %v", key, err)
			}
		})
		for i := range callers {
			if key := fmt.Sprint("k", i); i%3 != 0 {
				s.state(key, oncepipe.StateClaimed)
			}
		}
	}},
}

// tryClaim is claim for goroutines that may not end the test.
func (s *subject) tryClaim(req oncepipe.ClaimRequest) (oncepipe.ClaimAnswer, bool) {
	answers, err := s.Store.Claim(s.ctx(), []oncepipe.ClaimRequest{req})
	if err != nil || len(answers) != 1 {
		s.Errorf("claim: %v, %v", answers, err)
		return oncepipe.ClaimAnswer{}, false
	}
	return answers[0], true
}
