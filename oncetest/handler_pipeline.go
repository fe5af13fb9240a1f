package oncetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/oncepipe/oncepipe"
)

// Pipeline makes a handler, for a Program's Start, of a whole pipeline: build
// makes one that reads src. It runs as long as the process does. The handler hands
// it a delivery and waits for its settlement: it returns nil for Done, Duplicate,
// Filtered and Shed, an error for Returned, and a permanent one for Dead.
//
// key returns the key that a message's item has where steps are taken: from it the
// simulation knows whose step it is.
func Pipeline[M any, K ~string](p *Process, key func(M) K, build func(src oncepipe.Source[M]) *oncepipe.Pipeline) func(ctx context.Context, m M) error {
	p.async = true
	in := make(chan handed[M])
	pipe := build(oncepipe.SourceFunc[M](func(ctx context.Context) (oncepipe.Delivery[M], error) {
		select {
		case h := <-in:
			return oncepipe.Delivery[M]{Value: h.message, Settle: h.settle}, nil
		case <-ctx.Done():
			return oncepipe.Delivery[M]{}, ctx.Err()
		}
	}))
	ended := make(chan struct{})
	var failed error
	go func() {
		defer close(ended)
		failed = pipe.Run(p.ctx)
	}()
	p.Cleanup(func() { <-ended })
	return func(ctx context.Context, m M) error {
		p.keys.Store(string(key(m)), ctx.Value(runKey{}))
		h := handed[M]{m, make(chan oncepipe.Settlement, 1)}
		select {
		case in <- h:
		case <-ended:
			return fmt.Errorf("the pipeline has ended: %w", failed)
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case s := <-h.settled:
			return settlementError(s)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// handed is a delivery on its way through a pipeline.
type handed[M any] struct {
	message M
	settled chan oncepipe.Settlement
}

func (h handed[M]) settle(_ context.Context, s oncepipe.Settlement) error {
	h.settled <- s
	return nil
}

func settlementError(s oncepipe.Settlement) error {
	switch s.Outcome {
	case oncepipe.Returned:
		return errors.Join(errors.New("returned"), s.Err)
	case oncepipe.Dead:
		return oncepipe.Permanent(errors.Join(errors.New("dead letter"), s.Err))
	default:
		return nil
	}
}
