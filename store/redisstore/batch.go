package redisstore

import (
	"context"
	"fmt"

	"github.com/oncepipe/oncepipe"
)

// call is a call of the store's: how its requests are written down for their
// script, and its answers are read.
type call[Q, A any] struct {
	name   string
	script script
	shared []any // by all requests
	id     func(Q) oncepipe.RecordID
	args   func(to []any, req Q) []any
	answer func(req Q, reply any) (A, error)
}

// do sends a batch with one script and one round trip.
func (c call[Q, A]) do(ctx context.Context, st *Store, reqs []Q) ([]A, error) {
	if err := ctx.Err(); err != nil {
		return nil, wrap(c.name, err)
	}
	answers := make([]A, len(reqs))
	if len(reqs) == 0 {
		return answers, nil
	}
	args := c.shared
	for _, req := range reqs {
		args = c.args(args, req)
	}
	keys := st.keys.with(len(reqs), func(i int) oncepipe.RecordID { return c.id(reqs[i]) })
	cmd, err := st.run(ctx, c.script, keys, args)
	if err != nil {
		return nil, wrap(c.name, err)
	}
	replies, err := cmd.Slice()
	if err != nil {
		return nil, wrap(c.name, err)
	}
	if len(replies) != len(reqs) {
		return nil, wrap(c.name, fmt.Errorf("%w: %d answers to %d requests", errReply, len(replies), len(reqs)))
	}
	for i, reply := range replies {
		if answers[i], err = c.answer(reqs[i], reply); err != nil {
			return nil, wrap(c.name, err)
		}
	}
	return answers, nil
}

func wrap(what string, err error) error {
	return fmt.Errorf("redisstore: %s: %w", what, err)
}

// refused is wrap for the checks of requests, which say themselves what they refuse.
func refused(err error) error { return fmt.Errorf("redisstore: %w", err) }

// yes reads an answer that is a bool.
func yes[Q any](_ Q, reply any) (bool, error) {
	n, ok := reply.(int64)
	if !ok {
		return false, fmt.Errorf("%w: %T for a number", errReply, reply)
	}
	return n == 1, nil
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
