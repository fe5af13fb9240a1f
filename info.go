package oncepipe

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
)

// Info says which attempt a handler's context belongs to.
type Info struct {
	Pipeline  string
	Stage     string
	Namespace string // of the stage's records: the pipeline's name, or what the Namespace option says
	Step      string // inside Once: the step's name
	Key       string
	Attempt   int  // 1 for the first run in this stage; inside Once, runs by earlier deliveries and other processes count
	Takeover  bool // inside Once: an owner of the key has vanished, who may have begun
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

type bareKey string

func (k bareKey) info() Info { return Info{Key: string(k), Attempt: 1} }
func (bareKey) replayed()    {}

// StepID returns the record of step for the key that ctx carries: what Once
// and the stores' Tx functions act on. The error is ErrNoKey when there is none.
func StepID(ctx context.Context, step string) (RecordID, error) {
	info, ok := InfoFrom(ctx)
	if !ok || info.Key == "" {
		return RecordID{}, ErrNoKey
	}
	ns := Key(step) // escaped: a step "a/b" here is not the step "b" of pipeline "a"
	if info.Namespace != "" {
		ns = Key(info.Namespace, step)
	}
	return RecordID{Namespace: ns, Key: info.Key}, nil
}

// Replayed tells the stage that ctx belongs to that this attempt returned a
// recorded result instead of running: it is counted in StageStats.Replayed. For
// implementations of Once and Tx.
func Replayed(ctx context.Context) {
	if c, ok := ctx.Value(infoKey{}).(infoCarrier); ok {
		c.replayed()
	}
}
