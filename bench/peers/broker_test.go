package main

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
)

// What is open comes again, what is acked doesn't, and the end is when nothing is open.
func TestBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(messages(3), 2)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		r := receiveAll(ctx, b)
		r.expect(t, 0, 1)
		r.got[0].nack()
		r.got[0].ack() // too late
		r.expect(t, 0, 1, 2)
		b.copy(r.got[1].msg)
		r.expect(t, 0, 1, 2, 1)
		if n := b.takeBack(); n != 3 {
			t.Errorf("%d were open", n)
		}
		r.ackAll(t)
		if r.end == nil || over(r.end) != nil {
			t.Errorf("ended with %v", r.end)
		}
		if len(r.got) != 8 {
			t.Errorf("%d deliveries", len(r.got))
		}
	})
}

// receiver takes all that a broker delivers. It is looked at when its bubble is at rest.
type receiver struct {
	got []*delivery
	end error
}

func receiveAll(ctx context.Context, b *broker) *receiver {
	r := new(receiver)
	go func() {
		for r.end == nil {
			var d *delivery
			if d, r.end = b.receive(ctx); d != nil {
				r.got = append(r.got, d)
			}
		}
	}()
	return r
}

// expect fails when other messages than these have been delivered, or the end has come.
func (r *receiver) expect(t *testing.T, keys ...int) {
	t.Helper()
	synctest.Wait()
	var ns []int
	for _, d := range r.got {
		ns = append(ns, d.N)
	}
	if !slices.Equal(ns, keys) || r.end != nil {
		t.Fatalf("delivered %v, %v, want %v", ns, r.end, keys)
	}
}

// ackAll acks what is there and what comes then; the end comes with the last ack.
func (r *receiver) ackAll(t *testing.T) {
	t.Helper()
	synctest.Wait()
	for i := 0; i < len(r.got); i++ {
		if r.end != nil {
			t.Fatalf("ended with %v before delivery %d was acked", r.end, i)
		}
		r.got[i].ack()
		synctest.Wait()
	}
}
