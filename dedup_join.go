package oncepipe

import (
	"slices"
	"time"
)

// join is called with the shard's lock.
func (d *dedup[T]) join(e *entry[T], it item[T]) met {
	if len(e.joined) >= d.opt.joinKey || d.joinedN.Load() >= int64(d.opt.joinAll) {
		return metFull
	}
	d.joinedN.Add(1)
	c := &copied[T]{it: it, hash: e.hash, e: e, until: d.p.now() + d.opt.joinWait}
	d.mu.Lock()
	c.elem = d.waiting.PushBack(c)
	first := d.waiting.Len() == 1
	d.mu.Unlock()
	e.joined = append(e.joined, c)
	if first {
		d.nudge()
	}
	return metJoined
}

// unlist takes a copy off the list of those that wait.
func (d *dedup[T]) unlist(c *copied[T]) {
	d.mu.Lock()
	d.waiting.Remove(c.elem)
	d.mu.Unlock()
}

func (d *dedup[T]) nudge() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// tend sends copies that take over on their way, since whoever settled the
// first copy must not wait for room, and returns those that waited too long. It
// closes the output when the input has ended and no copy can take over any more.
func (d *dedup[T]) tend() {
	ended := false
	defer func() {
		if !ended { // by Goexit in an operator, or of a source
			d.nudge() // there may be more to send
			d.p.spawn(d.tend)
		}
	}()
	timer := time.NewTimer(d.opt.joinWait)
	defer timer.Stop()
	up := d.upEnded
	for up != nil || d.joinedN.Load() > 0 {
		select {
		case <-up:
			up = nil
		case <-d.wake:
		case <-timer.C:
		case <-d.p.stopped():
			// Somebody may still emit, so that the output is not closed.
			ended = true
			return
		}
		for {
			it, ok := d.nextTakeover()
			if !ok {
				break
			}
			d.joinedN.Add(-1)
			if d.p.isDraining() {
				it.t.settle(verdict{outcome: Returned, err: ErrShutdown})
			} else {
				d.letThrough(it.t.scope.owner.(*entry[T]), it.v)
			}
		}
		if next, any := d.expire(); any {
			timer.Reset(next)
		}
	}
	ended = true
	if d.store != nil {
		close(d.store.queue)
		return
	}
	d.out.next.close()
}

func (d *dedup[T]) nextTakeover() (item[T], bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.takeover) == 0 {
		return item[T]{}, false
	}
	it := d.takeover[0]
	d.takeover = d.takeover[1:]
	return it, true
}

// expire returns copies that waited too long, and says when to look again.
func (d *dedup[T]) expire() (time.Duration, bool) {
	for {
		d.mu.Lock()
		front := d.waiting.Front()
		if front == nil {
			d.mu.Unlock()
			return 0, false
		}
		c := front.Value.(*copied[T])
		d.mu.Unlock()
		if left := c.until - d.p.now(); left > 0 {
			return left, true
		}
		if d.unjoin(c) {
			d.overflowed.Add(1)
			c.it.t.settle(verdict{outcome: Returned, delay: d.opt.joinWait, err: ErrBusy})
			d.joinedN.Add(-1)
		}
	}
}

// unjoin reports whether c was still waiting.
func (d *dedup[T]) unjoin(c *copied[T]) bool {
	sh := d.shard(c.hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	i := slices.Index(c.e.joined, c)
	if i < 0 {
		return false
	}
	c.e.joined = slices.Delete(c.e.joined, i, i+1)
	d.unlist(c)
	return true
}
