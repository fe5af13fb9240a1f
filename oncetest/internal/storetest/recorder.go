package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
)

// Err is Check where no test is: it returns what is wrong, nil when nothing is.
func (r Rule) Err(env Env) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	rec := &recorder{ctx: ctx, rule: r}
	done := make(chan struct{})
	go func() { // of its own, since Fatalf ends it
		defer close(done)
		r.Check(rec, env)
	}()
	<-done
	return rec.err()
}

// recorder is a T that keeps what it is told.
type recorder struct {
	ctx  context.Context
	rule Rule

	mu   sync.Mutex
	errs []error
}

func (r *recorder) Helper() {}

func (r *recorder) Context() context.Context { return r.ctx }

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, fmt.Errorf("%v: %w", r.rule, fmt.Errorf(format, args...)))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.errs...)
}
