package oncetest_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/oncepipe/oncepipe/oncetest"
)

// A ledger in a file, and a second file that remembers what was booked: two
// writes, and a process can die between them. With a *testing.T it is
// oncetest.Kill(t, …), without Test.
func ExampleCheckKill() {
	err := oncetest.CheckKill(oncetest.KillService[string]{
		Test:    "ExampleCheckKill",
		Message: func(id, copy int) string { return fmt.Sprint("order-", id) },
		New: func(w *oncetest.World) oncetest.Program[string] {
			ledger, booked := filepath.Join(w.Dir(), "ledger"), filepath.Join(w.Dir(), "booked")
			return oncetest.Program[string]{
				Start: func(p *oncetest.Process) func(context.Context, string) error {
					return func(ctx context.Context, order string) error {
						if lines(booked, order) > 0 {
							return nil
						}
						if err := p.Step(ctx, "book", func() error { return addLine(ledger, order) }); err != nil {
							return err
						}
						return p.Step(ctx, "remember", func() error { return addLine(booked, order) })
					}
				},
				Effects: func(order string) int { return lines(ledger, order) },
			}
		},
	})
	fmt.Println(err)
	// Output:
	// twice: message 1 has 2 effects
	//    1. message 1 is delivered: book, then the process is killed (1 effect)
	//    2. message 1 comes again: book, remember, ack
	//    3. message 1 comes again: ack → 2 effects
}

func addLine(file, line string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintln(f, line)
	return err
}

func lines(file, line string) int {
	data, _ := os.ReadFile(file) // none yet: no lines
	return strings.Count(string(data), line+"\n")
}
