package oncetest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe/oncetest"
)

type order struct {
	ID   string
	Copy int
}

func TestScratch(t *testing.T) {
	start := time.Now()
	err := oncetest.CheckHandler(oncetest.Service[order]{
		Message: func(id, copy int) order { return order{fmt.Sprint("order-", id), copy} },
		New: func(w *oncetest.World) oncetest.Program[order] {
			rows := map[string]int{}
			return oncetest.Program[order]{
				Start: func(p *oncetest.Process) func(context.Context, order) error {
					seen := map[string]bool{}
					return func(ctx context.Context, o order) error {
						if seen[o.ID] {
							return nil
						}
						seen[o.ID] = true
						return p.Step(ctx, "insert row", func() error { rows[o.ID]++; return nil })
					}
				},
				Effects: func(o order) int { return rows[o.ID] },
			}
		},
	})
	fmt.Println(err, time.Since(start))
	start = time.Now()
	n := 0
	err = oncetest.CheckHandler(oncetest.Service[order]{
		Schedules: 10000,
		Message:   func(id, copy int) order { return order{fmt.Sprint("order-", id), copy} },
		New: func(w *oncetest.World) oncetest.Program[order] {
			n++
			rows := map[string]int{}
			return oncetest.Program[order]{
				Start: func(p *oncetest.Process) func(context.Context, order) error {
					return func(ctx context.Context, o order) error {
						return p.Step(ctx, "insert row", func() error { rows[o.ID] = 1; return nil })
					}
				},
				Effects: func(o order) int { return rows[o.ID] },
			}
		},
	})
	fmt.Println(err, time.Since(start), n)
}
