package oncepipe

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A copy that a branch sheds counts: the delivery is settled when the other branch
// is done with it, and as shed.
func TestBroadcastCountsShedCopies(t *testing.T) {
	for name, c := range map[string]struct {
		buffer BufferPolicy
		shed   []string
	}{
		"dropping": {Dropping(1), []string{"c", "d"}},
		"sliding":  {Sliding(1), []string{"b", "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ready := make(chan struct{})
				src := newShelf()
				p := New("p", Config{Logger: quiet})
				in := From(p, "source", SourceFunc[string](func(ctx context.Context) (Delivery[string], error) {
					d, err := src.Receive(ctx)
					if d.Value == "b" {
						<-ready
					}
					return d, err
				}))
				branches := Broadcast(in, 2)
				Sink(branches[0], "slow", func(_ context.Context, v string) error {
					if v == "a" {
						close(ready)
					}
					time.Sleep(time.Minute)
					return nil
				}, Buffer(c.buffer))
				Sink(branches[1], "long", func(context.Context, string) error {
					time.Sleep(time.Hour)
					return nil
				}, Workers(4))
				src.ready, src.open = []string{"a", "b", "c", "d"}, 4
				go func() {
					time.Sleep(30 * time.Minute)
					if s := p.Stats(); s.InFlight != 4 || s.Stages[0].Shed != 2 || s.Stages[0].Done != 2 {
						t.Errorf("before the other branch is done: %+v", s)
					}
				}()
				runFor(t, p, 2*time.Hour)
				want := map[string][]Outcome{"a": {Done}, "b": {Done}, "c": {Done}, "d": {Done}}
				for _, k := range c.shed {
					want[k] = []Outcome{Shed}
				}
				src.wantHeard(t, want)
				if s := p.Stats(); s.Shed != 2 || s.Done != 2 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}
