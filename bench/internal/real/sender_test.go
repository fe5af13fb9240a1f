package real

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
)

func TestSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 20 * time.Millisecond
		s := newSender(Cell{Load: 0.5, For: time.Second, Seed: 1}, 200, timeout)
		sent := map[string]int{}
		last := map[string]time.Time{}
		begun := time.Now()
		for {
			d, err := s.Receive(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			now := time.Now()
			if sent[d.Key]++; sent[d.Key] > 1 {
				if waited := now.Sub(last[d.Key]); waited < timeout {
					t.Errorf("%s was sent again after %v", d.Key, waited)
				}
			} else if now.Sub(begun) >= time.Second {
				t.Errorf("%s is new after %v", d.Key, now.Sub(begun))
			}
			last[d.Key] = now
			// The first copy is given back; the second one is done, and nobody hears of
			// it twice.
			outcome := []oncepipe.Outcome{oncepipe.Returned, oncepipe.Done}[sent[d.Key]-1]
			for range 2 {
				if err := d.Settle(t.Context(), oncepipe.Settlement{Outcome: outcome}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if s.keys < 70 || s.keys > 130 {
			t.Errorf("%d keys in a second at 100 a second", s.keys)
		}
		for key, n := range sent {
			if n != 2 {
				t.Errorf("%s was sent %d times", key, n)
			}
		}
		if s.deliveries != 2*s.keys || s.unacked.Load() != 0 {
			t.Errorf("%d deliveries of %d keys, %d not acked", s.deliveries, s.keys, s.unacked.Load())
		}
	})
}

func TestSender_SendsAgainBeforeWhatIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSender(Cell{Load: 1, For: time.Minute, Seed: 1}, 1000, 5*time.Millisecond)
		first, err := s.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Receive(t.Context()); err != nil { // now the first one is taken
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
		if again, err := s.Receive(t.Context()); err != nil || again.Key != first.Key {
			t.Errorf("%q after %q, %v", again.Key, first.Key, err)
		}
	})
}

func TestSender_StopsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSender(Cell{Load: 1, For: time.Hour, Seed: 1}, 1e-9, time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if d, err := s.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%q, %v", d.Key, err)
		}
	})
}
