package main

import (
	"fmt"
	"sync/atomic"

	"github.com/oncepipe/oncepipe/chans"
)

// puts are held to the same number of sends into a plain channel with room. Only
// one that makes a full sliding buffer shed is more than a send, by hand too: it
// takes a value and sends one.
func puts() []job {
	const items, room = 64 * 1024, 4096
	plain := func() {
		for range items / room {
			c := make(chan int, room)
			for i := range room {
				c <- i
			}
			expect(len(c), room)
		}
	}
	withRoom := func(make func(int, func(int)) *chans.Lossy[int]) func() {
		return func() {
			for range items / room {
				l := make(room, nil)
				for i := range room {
					_ = l.Put(i)
				}
				expect(len(l.C()), room)
			}
		}
	}
	full := func(make func(int, func(int)) *chans.Lossy[int]) func() {
		return func() {
			l := make(buffer, nil)
			for i := range items {
				_ = l.Put(i)
			}
			expect(int(l.Shed()), items-buffer)
		}
	}
	return []job{
		{"put/dropping with room", items, 1.5, withRoom(chans.Dropping), plain},
		{"put/sliding with room", items, 1.5, withRoom(chans.Sliding), plain},
		{"put/dropping when full", items, 1.5, full(chans.Dropping), plain},
		{"put/sliding when full", items, 1.5, full(chans.Sliding), func() { slide(items) }},
		{"put/sliding full : plain", items, reported, full(chans.Sliding), plain},
	}
}

// slide is the sliding put that one writes by hand, with its count.
func slide(items int) {
	c := make(chan int, buffer)
	var shed atomic.Uint64
	for i := range items {
		for sent := false; !sent; {
			select {
			case c <- i:
				sent = true
			default:
				select {
				case <-c:
					shed.Add(1)
				default:
				}
			}
		}
	}
	expect(int(shed.Load()), items-buffer)
}

func expect(got, want int) {
	if got != want {
		panic(fmt.Sprintf("%d of %d", got, want))
	}
}
