package record

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/oncepipe/oncepipe"
)

// codec turns the results of a Tx function into what is recorded, and back.
type codec[A, B any] struct {
	oncepipe.TxConfig[A, B]
	none bool // B is struct{}
}

func newCodec[A, B any](cfg oncepipe.TxConfig[A, B]) codec[A, B] {
	if cfg.Encode == nil {
		cfg.Encode = func(v B) ([]byte, error) { return json.Marshal(v) }
	}
	if cfg.Decode == nil {
		cfg.Decode = func(data []byte) (v B, err error) { return v, json.Unmarshal(data, &v) }
	}
	var zero B
	_, none := any(zero).(struct{})
	return codec[A, B]{cfg, none}
}

// result is what is recorded of b: nothing when it can't be encoded, since a
// done effect does not fail for its result.
func (c codec[A, B]) result(b B) Result {
	if c.none {
		return Result{}
	}
	var data []byte
	err := protect(func() (err error) { data, err = c.Encode(b); return err })
	return Result{data, err == nil}
}

// protect returns a panic of fn as an error.
func protect(fn func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return fn()
}

func (c codec[A, B]) fingerprint(a A) string {
	if c.Fingerprint == nil {
		return ""
	}
	return c.Fingerprint(a)
}

// decode returns a recorded result.
func (c codec[A, B]) decode(r Result) (b B, err error) {
	switch {
	case c.none:
		return b, nil
	case !r.Has:
		return b, fmt.Errorf("%w: none is recorded", oncepipe.ErrNoResult)
	}
	if err = protect(func() (err error) { b, err = c.Decode(r.Bytes); return err }); err != nil {
		var zero B
		return zero, fmt.Errorf("%w: %w", oncepipe.ErrNoResult, err)
	}
	return b, nil
}

// TxFunc makes fn happen once for each key, in one transaction with its record.
func TxFunc[N, A, B any](c *Core[N], step string, cfg oncepipe.TxConfig[A, B], fn func(context.Context, N, A) (B, error)) func(context.Context, A) (B, error) {
	codec := newCodec(cfg)
	once := c.Once
	if cfg.Shared {
		once = c.OnceShared
	}
	return func(ctx context.Context, a A) (B, error) {
		var none B
		id, err := oncepipe.StepID(ctx, step)
		if err != nil {
			return none, err
		}
		var b B
		out := once(ctx, Effect[N]{
			Step: step, IDs: []oncepipe.RecordID{id}, Fingerprints: []string{codec.fingerprint(a)},
			Run: func(ctx context.Context, tx N, _ []int) ([]Result, error) {
				var err error
				if b, err = fn(ctx, tx, a); err != nil {
					return nil, err
				}
				return []Result{codec.result(b)}, nil
			},
		})[0]
		if out.Err != nil {
			return none, out.Err
		}
		if out.Known {
			if b, err = codec.decode(out.Result); err != nil {
				return none, err
			}
			oncepipe.Replayed(ctx)
		}
		return b, nil
	}
}

// TxBatchFunc is TxFunc for many items in one transaction. fn is called for those of
// them that are new.
func TxBatchFunc[N, A, B any](c *Core[N], step string, cfg oncepipe.TxConfig[A, B], fn func(context.Context, N, []A) ([]B, error)) func(context.Context, []A) ([]B, error) {
	codec := newCodec(cfg)
	return func(ctx context.Context, batch []A) ([]B, error) {
		ids, err := oncepipe.BatchStepIDs(ctx, step)
		if err != nil {
			return nil, err
		}
		if len(ids) != len(batch) {
			return nil, oncepipe.Permanent(fmt.Errorf("step %q: %d keys for %d items", step, len(ids), len(batch)))
		}
		fps := make([]string, len(batch))
		for i, a := range batch {
			fps[i] = codec.fingerprint(a)
		}
		results := make([]B, len(batch))
		outcomes := c.Once(ctx, Effect[N]{
			Step: step, IDs: ids, Fingerprints: fps,
			Run: func(ctx context.Context, tx N, items []int) ([]Result, error) {
				return runBatch(ctx, tx, items, batch, results, codec, fn)
			},
		})
		return collected(ctx, outcomes, results, codec)
	}
}

// runBatch runs fn for some items of a batch.
func runBatch[N, A, B any](ctx context.Context, tx N, items []int, batch []A, results []B, codec codec[A, B], fn func(context.Context, N, []A) ([]B, error)) ([]Result, error) {
	fresh := make([]A, len(items))
	for n, i := range items {
		fresh[n] = batch[i]
	}
	bs, err := fn(ctx, tx, fresh)
	if err != nil {
		return nil, err
	}
	if len(bs) != len(items) {
		return nil, fmt.Errorf("%w: %d for %d items", oncepipe.ErrBatchResults, len(bs), len(items))
	}
	encoded := make([]Result, len(items))
	for n, i := range items {
		results[i], encoded[n] = bs[n], codec.result(bs[n])
	}
	return encoded, nil
}

// collected makes results of outcomes. The error is a *oncepipe.BatchError when there is
// one among them.
func collected[A, B any](ctx context.Context, outcomes []Outcome, results []B, codec codec[A, B]) ([]B, error) {
	errs := make([]error, len(outcomes))
	failed := false
	for i, out := range outcomes {
		switch {
		case out.Err != nil:
			errs[i] = out.Err
		case out.Known:
			if results[i], errs[i] = codec.decode(out.Result); errs[i] == nil {
				oncepipe.ReplayedItem(ctx, i)
			}
		}
		failed = failed || errs[i] != nil
	}
	if failed {
		return results, &oncepipe.BatchError{Errs: errs}
	}
	return results, nil
}
