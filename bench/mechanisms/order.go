package main

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
)

// order is a message as a worker gets it, with what is to go wrong.
type order struct {
	Key      string    `json:"key"`
	Delivery int       `json:"delivery"`
	Do       directive `json:"do,omitempty"`

	desk desk
	done atomic.Bool // Do was followed
}

// directive is what goes wrong with a delivery, the first time that its effect is
// about to be made or was made.
type directive string

const (
	meet       directive = "meet"        // before the effect, wait for the other copy to come as far
	failBefore directive = "fail before" // the effect is refused
	failAfter  directive = "fail after"  // it is made, and the reply is lost
	dieBefore  directive = "die before"  // SIGKILL
	dieAfter   directive = "die after"   // SIGKILL when the effect is committed
)

// desk is where a worker reports that a delivery is about to have its effect.
// meet returns when another copy is as far, or needn't be waited for.
type desk interface {
	meet(ctx context.Context, delivery int)
}

var (
	errRefused   = errors.New("the effect was refused")
	errReplyLost = errors.New("the reply was lost")
)

// before is called right before the effect.
func (o *order) before(ctx context.Context) error {
	switch {
	case o.Do == meet && o.first():
		o.desk.meet(ctx, o.Delivery)
	case o.Do == failBefore && o.first():
		return errRefused
	case o.Do == dieBefore:
		die()
	}
	return nil
}

// after is called by the database driver right after the effect is committed.
func (o *order) after() error {
	switch {
	case o.Do == failAfter && o.first():
		return errReplyLost
	case o.Do == dieAfter:
		die()
	}
	return nil
}

func (o *order) first() bool { return o.done.CompareAndSwap(false, true) }

// die does not return before the signal has arrived.
func die() {
	me, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = me.Kill()
	}
	if err != nil {
		panic(err)
	}
	select {}
}
