package oncetest_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/oncetest"
)

// mailbox is a source over a channel. It takes messages back, but at once.
type mailbox chan string

func (m mailbox) Receive(ctx context.Context) (oncepipe.Delivery[string], error) {
	select {
	case text := <-m:
		return oncepipe.Delivery[string]{Value: text, Key: text, Settle: func(_ context.Context, s oncepipe.Settlement) error {
			if s.Outcome == oncepipe.Returned {
				m <- text
			}
			return nil
		}}, nil
	case <-ctx.Done():
		return oncepipe.Delivery[string]{}, fmt.Errorf("mailbox: %w", ctx.Err())
	}
}

// The adapter forgets the delay of what is returned, and who returns a delivery
// twice has two of it. In a test, this is
// oncetest.Source(t, cfg).
func ExampleCheckSource() {
	err := oncetest.CheckSource(oncetest.SourceConfig[string]{
		New: func() (oncetest.SourceEnv[string], error) {
			m := make(mailbox, 100)
			return oncetest.SourceEnv[string]{
				Source: m,
				Send:   func(text string) error { m <- text; return nil },
			}, nil
		},
		Text:   func(text string) string { return text },
		Bubble: true,
		Keyed:  true,
		Delay:  10 * time.Second,
		NotApplicable: func(_, why string) {
			if strings.HasPrefix(why, "there is no SourceEnv") {
				fmt.Println("not checked:", why)
			}
		},
	})
	fmt.Println(err)
	// Output:
	// not checked: there is no SourceEnv.End
	// not checked: there is no SourceEnv.RefuseSettlements
	// not checked: there is no SourceEnv.LoseAnswers
	// oncetest: source: rule "to settle twice does no harm": ["message 2"] came, want ["message 3"]
	// oncetest: source: rule "what is returned comes again after its delay, not before": "message 1" came after 0s, and not after 10s
}
