package oncetest

import (
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestQuiet(t *testing.T) {
	for _, c := range []struct {
		name         string
		begin        func() (end func())
		quiet, stuck bool
	}{
		{"nobody else", func() func() { return func() {} }, true, false},
		{"a sleep", func() func() {
			done := make(chan int)
			go func() { defer close(done); time.Sleep(time.Second) }()
			return func() { <-done }
		}, true, false},
		{"a channel of the bubble", func() func() {
			c := make(chan int)
			go func() { <-c }()
			return func() { close(c) }
		}, true, false},
		{"a WaitGroup", func() func() {
			var wg sync.WaitGroup
			wg.Add(1)
			go wg.Wait()
			return wg.Done
		}, true, false},
		{"a Mutex", func() func() {
			var mu sync.Mutex
			mu.Lock()
			go func() { mu.Lock(); defer mu.Unlock() }()
			return mu.Unlock
		}, true, true},
		{"an RWMutex", func() func() {
			var mu sync.RWMutex
			mu.Lock()
			go func() { mu.RLock(); defer mu.RUnlock() }()
			return mu.Unlock
		}, true, true},
		{"a channel from outside", func() func() {
			go func() { <-outside }()
			return func() { outside <- 1 }
		}, false, false},
		{"work", func() func() {
			var stop atomic.Bool
			go func() {
				for !stop.Load() {
					runtime.Gosched()
				}
			}()
			return func() { stop.Store(true) }
		}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				end := c.begin()
				w := newWatch()
				// A goroutine that has just begun may not be where it will wait.
				var is, locked bool
				for range 1000 {
					if is, locked = w.quiet(); is == c.quiet && locked == c.stuck {
						break
					}
				}
				if is != c.quiet || locked != c.stuck {
					t.Errorf("quiet %v, locked %v", is, locked)
				}
				end()
			})
		})
	}
}

var outside = make(chan int)

// The runtime takes a goroutine out of its bubble while it helps the garbage
// collector. It is not quiet then, known before or not, whoever has created it.
func TestQuietBesideTheCollector(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	synctest.Test(t, func(t *testing.T) {
		w := newWatch()
		for i := range 30 { // goroutines are new at first
			var over atomic.Bool
			work := func() {
				for !over.Load() {
					garbage.Store(new([1 << 14]byte))
				}
			}
			if i%2 == 0 {
				go work()
			} else {
				time.AfterFunc(time.Nanosecond, work)
				time.Sleep(time.Nanosecond)
			}
			for range 20 {
				if is, _ := w.quiet(); is {
					t.Error("quiet, and a goroutine allocates")
				}
				runtime.Gosched()
			}
			over.Store(true)
			synctest.Wait()
			if is, _ := w.quiet(); !is {
				t.Error("not quiet when it has ended")
			}
		}
	})
}

var garbage atomic.Pointer[[1 << 14]byte]
