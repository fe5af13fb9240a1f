package oncetest

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestBubble(t *testing.T) {
	for _, c := range []struct {
		name string
		f    func()
		want string
	}{
		{"an end", func() { time.Sleep(time.Hour) }, ""},
		{"a panic", func() { panic("no") }, "panic: no"},
		{"a Goexit", runtime.Goexit, "Goexit"},
		{"a goroutine that nothing wakes", func() { go func() { <-make(chan int) }() }, "deadlock"},
	} {
		t.Run(c.name, func(t *testing.T) {
			switch err := bubble(c.f); {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}
