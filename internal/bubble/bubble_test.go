package bubble_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe/internal/bubble"
)

func TestRun(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		f    func() error
		want string
	}{
		"good":    {func() error { time.Sleep(1000 * time.Hour); return nil }, ""},
		"error":   {func() error { return broken }, "broken"},
		"panic":   {func() error { panic("oh") }, "panic: oh"},
		"Goexit":  {func() error { runtime.Goexit(); return nil }, "runtime.Goexit"},
		"waiting": {func() error { go func() { <-make(chan int) }(); return nil }, "deadlock"},
	} {
		t.Run(name, func(t *testing.T) {
			err := bubble.Run(c.f)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v", err)
			}
			if name == "error" && !errors.Is(err, broken) {
				t.Errorf("not the error itself: %v", err)
			}
		})
	}
}
