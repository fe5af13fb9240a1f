package oncepipe

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"
)

func queueItem(v int) item[int] { return item[int]{v: v} }

// receiveFrom waits as a worker does. It returns false at the end.
func receiveFrom(q *queue[int], it *item[int]) bool {
	for !q.take(it) {
		if q.ended() {
			return false
		}
		if q.await() {
			<-q.filled
		}
		q.awake()
	}
	return true
}

// Against a list: order, bound, and what room there is.
func TestQueueModel(t *testing.T) {
	check(t, 200, func(rt *rapid.T) {
		size := rapid.IntRange(1, 9).Draw(rt, "size")
		var q queue[int]
		q.open(size, rapid.IntRange(1, 4).Draw(rt, "readers"))
		var model []int
		n := 0
		rt.Repeat(map[string]func(*rapid.T){
			"put": func(rt *rapid.T) {
				n++
				if ok := q.put(queueItem(n)); ok != (len(model) < size) {
					rt.Fatalf("put with %d of %d: %v", len(model), size, ok)
				} else if ok {
					model = append(model, n)
				}
			},
			"take": func(rt *rapid.T) {
				var it item[int]
				ok := q.take(&it)
				if ok != (len(model) > 0) || ok && it.v != model[0] {
					rt.Fatalf("took %d, %v of %v", it.v, ok, model)
				}
				if ok {
					model = model[1:]
				}
			},
			"": func(rt *rapid.T) {
				if q.len() != len(model) {
					rt.Fatalf("%d items, want %d", q.len(), len(model))
				}
			},
		})
	})
}

// Nobody waits for ever, and every item arrives once, in the order of its
// writer where there is one reader: in a bubble a lost token is a deadlock.
func TestQueueLosesNoToken(t *testing.T) {
	const each = 2000
	for _, size := range []int{0, 1, 2, 3, 8} {
		for _, writers := range []int{1, 2, 4} {
			for _, readers := range []int{1, 3} {
				t.Run(fmt.Sprintf("size %d, %d to %d", size, writers, readers), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						var q queue[int]
						q.open(size, readers)
						var in, out errgroup.Group
						for w := range writers {
							in.Go(func() error {
								for i := range each {
									if it := queueItem(w*each + i); !q.put(it) && !q.putWait(it, nil) {
										return fmt.Errorf("item %d was refused", it.v)
									}
								}
								return nil
							})
						}
						var mu sync.Mutex
						seen := make([]int, writers*each)
						last := make([]int, writers)
						for range readers {
							out.Go(func() error {
								var it item[int]
								for receiveFrom(&q, &it) {
									mu.Lock()
									seen[it.v]++
									w, i := it.v/each, it.v%each+1
									inOrder := i == last[w]+1
									last[w] = i
									mu.Unlock()
									if readers == 1 && !inOrder {
										return fmt.Errorf("item %d of writer %d out of order", i, w)
									}
								}
								return nil
							})
						}
						if err := in.Wait(); err != nil {
							t.Error(err)
						}
						q.close()
						if err := out.Wait(); err != nil {
							t.Error(err)
						}
						for v, n := range seen {
							if n != 1 {
								t.Fatalf("item %d arrived %d times", v, n)
							}
						}
					})
				})
			}
		}
	}
}

// A queue without places takes an item only for a reader that waits.
func TestQueueWithoutPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue[int]
		q.open(0, 2)
		if q.put(queueItem(1)) {
			t.Fatal("took an item that nobody waits for")
		}
		got := make(chan int)
		go func() {
			var it item[int]
			receiveFrom(&q, &it)
			got <- it.v
		}()
		synctest.Wait()
		if !q.put(queueItem(2)) || q.put(queueItem(3)) {
			t.Error("one reader waits, and not one item was taken")
		}
		if v := <-got; v != 2 {
			t.Errorf("got %d", v)
		}
	})
}

// A writer that waits gives up when it is stopped.
func TestQueueStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue[int]
		q.open(1, 1)
		q.put(queueItem(1))
		stop := make(chan struct{})
		refused := make(chan bool)
		go func() { refused <- !q.putWait(queueItem(2), stop) }()
		synctest.Wait()
		close(stop)
		if !<-refused || q.len() != 1 {
			t.Error("the item was taken")
		}
	})
}

// An item that is put between a reader's look and its announcement is found by
// its last look: no token is sent for it.
func TestQueueLastLook(t *testing.T) {
	var q queue[int]
	q.open(1, 1)
	var it item[int]
	if q.take(&it) {
		t.Fatal("took an item from an empty queue")
	}
	q.put(queueItem(1))
	if q.await() {
		t.Error("waits beside an item")
	}
	q.awake()
	if len(q.filled) != 0 {
		t.Error("a token for nobody")
	}
}

// A writer that found room passes the token on when another one waits: there
// may be room for both, and there is but one token.
func TestQueueTokenIsPassedOn(t *testing.T) {
	var q queue[int]
	q.open(2, 1)
	q.writers.Add(1) // another one, about to wait
	if !q.putWait(queueItem(1), nil) || len(q.room) != 1 {
		t.Error("the other writer waits beside a free place")
	}
}
