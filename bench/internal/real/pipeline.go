package real

import (
	"context"
	"fmt"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/oncepipe/oncepipe"
)

// pipeline is what the cell is about: sender, guard, buffer, workers.
func pipeline(c Cell, s *sender, e effect) *oncepipe.Pipeline {
	p := oncepipe.New("window", oncepipe.Config{DeadLetters: func(_ context.Context, l oncepipe.DeadLetter) error {
		s.giveUp(fmt.Errorf("effect of %s: %w", l.Key, l.Err))
		return nil
	}})
	keys := oncepipe.From(p, "sender", s)
	if c.Guard == Ours || c.Guard == OursTx {
		keys = oncepipe.Dedup(keys, "dedup", func(key string) string { return key })
	}
	if c.Guard == Completed {
		e = rememberDone(e)
	}
	oncepipe.Sink(keys, "effect", e, oncepipe.Workers(c.Workers), oncepipe.Buffer(oncepipe.Fixed(c.Buffer)))
	return p
}

// rememberDone has no effect for keys whose effect is over and not forgotten.
func rememberDone(e effect) effect {
	done, err := lru.New[string, struct{}](completedKeys)
	if err != nil {
		panic(err) // the size is positive
	}
	return func(ctx context.Context, key string) error {
		if done.Contains(key) {
			return nil
		}
		if err := e(ctx, key); err != nil {
			return err
		}
		done.Add(key, struct{}{})
		return nil
	}
}
