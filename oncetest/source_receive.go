package oncetest

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"
)

// The rules about what comes, and how Receive ends.
var receiveRules = []sourceRule{
	{name: "each message comes once and in full", check: func(r *sourceRig) {
		texts := append(r.sendSome(3), "¡ünïcode, 漢字 and 😀!", "two\nlines, a \"quote\" and a \\", strings.Repeat("long ", 200))
		r.send(texts[3:]...)
		r.start()
		r.finished(r.receive(texts...)...)
	}},
	{name: "values stay as they came", check: func(r *sourceRig) {
		texts := r.sendSome(6)
		r.start()
		got := r.receive(texts...)
		unchanged := func(when string) {
			for _, a := range got {
				if now := a.now(); now != a.text {
					r.fatal("%s, %q has become %q", when, a.text, now)
				}
			}
		}
		unchanged("when others had come")
		r.finished(got...)
		unchanged("when all was settled")
	}},
	{name: "Receive waits for a message", check: func(r *sourceRig) {
		r.start()
		r.nothing("with an empty queue")
		if r.run.over() {
			r.fatal("with an empty queue, Receive answers %v", r.run.err)
		}
		if r.outage != nil {
			r.fatal("with an empty queue, Receive answers %v", r.outage)
		}
		r.finished(r.receive(r.sendSome(1)...)...)
	}},
	{name: "Receive ends with its context and says so", check: func(r *sourceRig) {
		wraps := func(when string, err, want error) {
			if !errors.Is(err, want) {
				r.fatal("%s, Receive answers %v, which does not wrap ctx.Err(), %v", when, err, want)
			}
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		call := r.call(ctx)
		r.nothing("with an empty queue")
		cancel()
		wraps("when its context is cancelled", r.answer(call, "when its context is cancelled"), context.Canceled)
		wraps("on a context that had ended", r.answer(r.call(ctx), "on a context that had ended"), context.Canceled)

		ctx, cancel = context.WithTimeout(context.Background(), min(r.cfg.Quiet, r.cfg.Patience/4))
		defer cancel()
		wraps("after its deadline", r.answer(r.call(ctx), "after its deadline"), context.DeadlineExceeded)
	}},
	{name: "a context that ends loses nothing", check: losesNothing},
	{name: "io.EOF comes at the end, and again", check: func(r *sourceRig) {
		r.needs(r.env.End != nil, "there is no SourceEnv.End")
		r.start()
		r.finish(r.receive(r.sendSome(2)...)...)
		r.env.End()
		if !r.until(r.cfg.Patience, r.run.over) {
			r.fatal("when the queue has ended and is empty, Receive goes on for %v", r.cfg.Patience)
		}
		if err := r.run.err; !errors.Is(err, io.EOF) {
			r.fatal("when the queue has ended, Receive answers %v", err)
		}
		for range 2 {
			ctx, cancel := context.WithCancel(context.Background())
			err := r.answer(r.call(ctx), "after io.EOF")
			cancel()
			if !errors.Is(err, io.EOF) {
				r.fatal("after io.EOF, Receive answers %v", err)
			}
		}
	}},
}

// losesNothing ends the context of one Receive after the other, each at another
// moment.
func losesNothing(r *sourceRig) {
	var texts []string
	for _, moment := range []func(cancel func()){
		func(cancel func()) { cancel(); texts = append(texts, r.sendSome(1)...) },
		func(cancel func()) { texts = append(texts, r.sendSome(1)...); cancel() },
		func(cancel func()) { texts = append(texts, r.sendSome(1)...); r.pass(time.Millisecond); cancel() },
	} {
		for range 2 {
			ctx, cancel := context.WithCancel(context.Background())
			call := r.call(ctx)
			r.pass(time.Millisecond)
			moment(cancel)
			_ = r.answer(call, "when its context is cancelled") // what there was, or the end
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	texts = append(texts, r.sendSome(2)...)
	for range 2 {
		_ = r.answer(r.call(ctx), "on a context that had ended")
	}
	came := r.fresh()
	r.seen += len(came)
	r.finish(came...)
	r.start()
	r.finishEach(r.cfg.Patience+r.cfg.Hold, r.without(texts, came))
	r.finished()
}
