package chans_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/oncepipe/oncepipe/chans"
)

// One writer and one reader in turn: exactly the model.
func TestLossyAgreesWithItsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "n")
		slides := rapid.Bool().Draw(t, "slides")
		var shed, model, modelShed []int
		observe := func(v int) { shed = append(shed, v) }
		l := chans.Dropping(n, observe)
		if slides {
			l = chans.Sliding(n, observe)
		}
		for v := range rapid.IntRange(0, 40).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "take") {
				got, ok, _ := chans.Poll(l.C())
				if ok != (len(model) > 0) || ok && got != model[0] {
					t.Fatalf("took %v, %v of %v", got, ok, model)
				}
				model = model[min(1, len(model)):]
				continue
			}
			if err := l.Put(v); err != nil {
				t.Fatal(err)
			}
			switch {
			case len(model) < n:
				model = append(model, v)
			case slides:
				modelShed = append(modelShed, model[0])
				model = append(slices.Clone(model[1:]), v)
			default:
				modelShed = append(modelShed, v)
			}
		}
		l.Close()
		l.Close()
		if err := l.Put(0); err != chans.ErrClosed {
			t.Fatalf("put after close: %v", err)
		}
		rest, _ := chans.Into(context.Background(), nil, l.C())
		if !slices.Equal(rest, model) || !slices.Equal(shed, modelShed) || l.Shed() != uint64(len(shed)) {
			t.Fatalf("rest %v, shed %v (%d), want %v and %v", rest, shed, l.Shed(), model, modelShed)
		}
	})
}

// Many writers, readers and a Close among them: every value that was put is
// taken or shed, once.
func TestLossyWithManyWriters(t *testing.T) {
	for name, build := range map[string]func(int, func(int)) *chans.Lossy[int]{
		"Dropping": chans.Dropping[int], "Sliding": chans.Sliding[int],
	} {
		t.Run(name, func(t *testing.T) {
			var observed atomic.Int64
			l := build(3, func(int) { observed.Add(1) })
			var writers, readers sync.WaitGroup
			var put, took atomic.Int64
			for range 4 {
				writers.Go(func() {
					for i := range 5000 {
						if l.Put(i) == nil {
							put.Add(1)
						}
					}
				})
				readers.Go(func() {
					for range l.C() {
						took.Add(1)
					}
				})
			}
			writers.Go(func() {
				for put.Load() < 10000 {
					runtime.Gosched()
				}
				l.Close()
			})
			writers.Wait()
			l.Close()
			readers.Wait()
			if took.Load()+int64(l.Shed()) != put.Load() || observed.Load() != int64(l.Shed()) {
				t.Errorf("put %d, took %d, shed %d, observed %d", put.Load(), took.Load(), l.Shed(), observed.Load())
			}
		})
	}
}

// After many writers without a reader, the buffer is full.
func TestSlidingStaysFull(t *testing.T) {
	l := chans.Sliding[int](5, nil)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 5000 {
				_ = l.Put(i)
			}
		})
	}
	wg.Wait()
	if len(l.C()) != 5 || l.Shed() != 4*5000-5 {
		t.Errorf("%d in the buffer, %d shed", len(l.C()), l.Shed())
	}
}

func TestLossyHandsOverToAWaitingReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := chans.Dropping[int](1, nil)
		_ = l.Put(0)
		got, wait := chans.Go(3, func(to chan<- int) error { return chans.Pipe(t.Context(), to, l.C()) })
		synctest.Wait() // the reader has 0 and waits
		_ = l.Put(1)
		_ = l.Put(2)
		l.Close()
		noError(t, wait())
		same(t, "shed", []uint64{l.Shed()}, []uint64{0})
		list, err := chans.Into(t.Context(), nil, got)
		noError(t, err)
		same(t, "values", list, []int{0, 1, 2})
	})
}

// An observer that closes the channel, or panics, harms nothing.
func TestLossyObservers(t *testing.T) {
	var l *chans.Lossy[int]
	l = chans.Sliding(1, func(v int) {
		if l.Close(); v == 1 {
			panic(errBroken)
		}
	})
	_ = l.Put(1)
	func() {
		defer func() { _ = recover() }()
		_ = l.Put(2)
		t.Error("the writer doesn't see the panic")
	}()
	is(t, l.Put(3), chans.ErrClosed)
	list, err := chans.Into(t.Context(), nil, l.C())
	noError(t, err)
	same(t, "values", list, nil)
}

func TestPromise(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, end func()) {
		p := chans.NewPromise[int]()
		var got []int
		var mu sync.Mutex
		var wg sync.WaitGroup
		ask := func(ctx context.Context) {
			v, err := p.Get(ctx)
			noError(t, err)
			mu.Lock()
			got = append(got, v)
			mu.Unlock()
		}
		for range 3 {
			wg.Go(func() { ask(ctx) })
		}
		synctest.Wait()
		if !p.Deliver(1) || p.Deliver(2) {
			t.Error("the first value wins")
		}
		p.Close()
		wg.Wait()
		end()
		ask(ctx) // a value is there whatever the context
		<-p.Done()
		same(t, "values", got, []int{1, 1, 1, 1})
	})
}

func TestPromiseWithoutValue(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, end func()) {
		p := chans.NewPromise[int]()
		errs, wait := chans.Go(2, func(to chan<- error) error {
			_, err := p.Get(ctx)
			to <- err
			_, err = p.Get(context.WithoutCancel(ctx))
			to <- err
			return nil
		})
		synctest.Wait()
		end()
		is(t, <-errs, errBroken)
		p.Close()
		p.Close()
		is(t, <-errs, chans.ErrClosed)
		noError(t, wait())
		if p.Deliver(1) {
			t.Error("delivered after close")
		}
	})
}

// One of many wins, and all see the same.
func TestPromiseRace(t *testing.T) {
	p := chans.NewPromise[int]()
	var wins atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if p.Deliver(i) {
				wins.Add(1)
			}
			v, err := p.Get(t.Context())
			if w, _ := p.Get(t.Context()); err != nil || v != w {
				t.Errorf("got %v and %v, %v", v, w, err)
			}
		})
	}
	wg.Wait()
	same(t, "winners", []int64{wins.Load()}, []int64{1})
}

func TestSendAndReceive(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, end func()) {
		c := make(chan int, 1)
		noError(t, chans.Send(ctx, c, 1))
		sent := make(chan error, 1)
		go func() { sent <- chans.Send(ctx, c, 2) }()
		synctest.Wait()
		same(t, "sent", []int{len(sent)}, []int{0})
		v, err := chans.Receive(ctx, c)
		noError(t, err)
		noError(t, <-sent)
		w, err := chans.Receive(ctx, c)
		noError(t, err)
		same(t, "values", []int{v, w}, []int{1, 2})

		go func() {
			_, err := chans.Receive(ctx, c)
			sent <- err
		}()
		synctest.Wait()
		end()
		is(t, <-sent, errBroken)
		is(t, chans.Send(ctx, c, 3), errBroken)
		same(t, "nothing was sent", taken(t, c), nil)
	})
}

func TestClosedChannel(t *testing.T) {
	c := make(chan int, 1)
	c <- 1
	if ok, err := chans.Offer(c, 2); ok || err != nil {
		t.Errorf("full: %v, %v", ok, err)
	}
	close(c)
	_, err := chans.Offer(c, 2)
	is(t, err, chans.ErrClosed)
	is(t, chans.Send(t.Context(), c, 2), chans.ErrClosed)
	v, err := chans.Receive(t.Context(), c)
	noError(t, err)
	same(t, "values", []int{v}, []int{1})
	_, err = chans.Receive(t.Context(), c)
	is(t, err, chans.ErrClosed)
	_, _, err = chans.Poll(c)
	is(t, err, chans.ErrClosed)
	open := make(chan int, 1)
	if _, ok, err := chans.Poll(open); ok || err != nil {
		t.Errorf("empty: %v, %v", ok, err)
	}
	if ok, err := chans.Offer(open, 2); !ok || err != nil {
		t.Errorf("room: %v, %v", ok, err)
	}
}
