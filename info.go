package oncepipe

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
)

// Info says which attempt a handler's context belongs to.
type Info struct {
	Pipeline  string
	Stage     string
	Namespace string // of the stage's records: the pipeline's name, or what the Namespace option says
	Step      string // inside Once: the step's name
	Key       string
	Attempt   int  // 1 for the first run in this stage; inside Once, or behind Dedup with a store, runs by earlier deliveries and other processes count
	Takeover  bool // there too: an owner of the key has vanished, who may have begun
}

// Token returns a stable token for a third party that takes idempotency keys:
// the same for every attempt and redelivery of this key at this stage, and
// different for other stages and keys. Inside Once it is that of the record, by
// namespace, step and key: two steps of a handler have two tokens, and to rename
// the stage changes nothing.
func (i Info) Token() string {
	name := Key(i.Namespace, i.Stage, i.Key)
	if i.Step != "" {
		name = Key("step", i.Namespace, i.Step, i.Key)
	}
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16])
}

// infoCarrier is implemented by what a context finds under infoKey.
type infoCarrier interface {
	info() Info
	replayed()
	keeper(st Store) *keeper // nil: the claim renews itself
}

type infoKey struct{}

// InfoFrom returns what is known of the attempt that ctx belongs to, or false
// outside a stage and without WithKey.
func InfoFrom(ctx context.Context) (Info, bool) {
	c, ok := ctx.Value(infoKey{}).(infoCarrier)
	if !ok {
		return Info{}, false
	}
	return c.info(), true
}

// WithKey gives Once and the stores' Tx functions a key where there is no
// pipeline, for instance in an HTTP handler.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, infoKey{}, bareKey(key))
}

// WithKeys is WithKey for a function that takes many items at once: it gives
// them their keys, in the order of its slice, for BatchFrom and BatchStepIDs.
func WithKeys(ctx context.Context, keys ...string) context.Context {
	return context.WithValue(ctx, infoKey{}, bareKeys(slices.Clone(keys)))
}

// batchCarrier is an infoCarrier of several items.
type batchCarrier interface {
	infos() []Info
	replayedItem(i int)
}

// BatchFrom returns what is known of each item of the batch that ctx belongs to,
// in the order of the slice that the batch function got. There, InfoFrom knows
// no key and no attempt. Outside a batch it is the one that InfoFrom returns, or
// nil.
func BatchFrom(ctx context.Context) []Info {
	switch c := ctx.Value(infoKey{}).(type) {
	case batchCarrier:
		return c.infos()
	case infoCarrier:
		return []Info{c.info()}
	}
	return nil
}

type bareKeys []string

func (bareKeys) info() Info           { return Info{} }
func (bareKeys) replayed()            {}
func (bareKeys) replayedItem(int)     {}
func (bareKeys) keeper(Store) *keeper { return nil }

func (k bareKeys) infos() []Info {
	out := make([]Info, len(k))
	for i, key := range k {
		out[i] = bareKey(key).info()
	}
	return out
}

type bareKey string

func (k bareKey) info() Info { return Info{Key: string(k), Attempt: 1} }
func (bareKey) replayed()    {}

func (bareKey) keeper(Store) *keeper { return nil }

// StepID returns the record of step for the key that ctx carries: what Once
// and the stores' Tx functions act on. The error is ErrNoKey when there is none.
func StepID(ctx context.Context, step string) (RecordID, error) {
	info, ok := InfoFrom(ctx)
	if !ok || info.Key == "" {
		return RecordID{}, ErrNoKey
	}
	return RecordID{Namespace: info.records(step), Key: info.Key}, nil
}

// BatchStepIDs is StepID for all items of a batch, in the order of its slice. The
// error is ErrNoKey when there are none, or one of them has no key: returned by
// a batch function, it has the batch cut until that item stands alone.
func BatchStepIDs(ctx context.Context, step string) ([]RecordID, error) {
	infos := BatchFrom(ctx)
	if len(infos) == 0 {
		return nil, ErrNoKey
	}
	namespace := infos[0].records(step)
	ids := make([]RecordID, len(infos))
	for i, info := range infos {
		if info.Key == "" {
			return nil, fmt.Errorf("item %d of the batch: %w", i, ErrNoKey)
		}
		ids[i] = RecordID{Namespace: namespace, Key: info.Key}
	}
	return ids, nil
}

// records is the namespace of a step's records.
func (i Info) records(step string) string {
	if i.Namespace == "" {
		return Key(step) // escaped: a step "a/b" here is not the step "b" of pipeline "a"
	}
	return Key(i.Namespace, step)
}

// Replayed tells the stage that ctx belongs to that this attempt returned a
// recorded result instead of running: it is counted in StageStats.Replayed. For
// implementations of Once and Tx. In a batch it speaks of all items.
func Replayed(ctx context.Context) {
	if c, ok := ctx.Value(infoKey{}).(infoCarrier); ok {
		c.replayed()
	}
}

// ReplayedItem is Replayed for the item at place i of a batch. It counts when the
// item is done in this call of the batch function.
func ReplayedItem(ctx context.Context, i int) {
	switch c := ctx.Value(infoKey{}).(type) {
	case batchCarrier:
		c.replayedItem(i)
	case infoCarrier:
		c.replayed()
	}
}
