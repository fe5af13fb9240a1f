package oncetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// hanging is a service whose handlers never return. Its processes write a file
// when they have begun.
func hanging(dir func(w *World) string) KillService[int] {
	return KillService[int]{
		Message: func(id, _ int) int { return id },
		New: func(w *World) Program[int] {
			begun := filepath.Join(dir(w), "begun")
			return Program[int]{
				Start: func(p *Process) func(context.Context, int) error {
					return func(context.Context, int) error {
						if err := os.WriteFile(begun, fmt.Append(nil, os.Getpid(), "\n"), 0o600); err != nil {
							return err
						}
						select {}
					}
				},
				Effects: func(int) int { return 0 },
			}
		},
		Timeout: time.Hour,
	}
}

// eventually waits for something that happens in another process.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !happened(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func TestKill_EndsWithTheTestsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dirs := make(chan string, 10)
	s := hanging(func(w *World) string {
		dirs <- w.Dir()
		return w.Dir()
	})
	s.Test = t.Name()
	ended := make(chan error)
	go func() { ended <- checkKill(ctx, s) }()
	dir := <-dirs
	eventually(t, "the handler has begun", func() bool { return exists(filepath.Join(dir, "begun")) })
	cancel()
	err := <-ended
	var f *Failure
	if !errors.Is(err, context.Canceled) || errors.As(err, &f) {
		t.Errorf("error %v", err)
	}
	if exists(dir) {
		t.Errorf("%s is still there", dir)
	}
}
