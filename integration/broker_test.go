package integration

import (
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/oncetest"
)

// broker delivers keys until each is settled for good, as a message queue does.
type broker = oncetest.Broker[string]

// newBroker calls settled when a key is settled for good; it may refuse.
func newBroker(settled func(key string, s oncepipe.Settlement) error) *broker {
	return oncetest.NewBroker(oncetest.BrokerConfig[string]{
		Key: func(key string) string { return key },
		// Whoever it was that could not be asked, or is at work: a moment at least.
		RedeliveryDelay: 10 * time.Millisecond,
		OnSettle: func(key string, s oncepipe.Settlement) error {
			if s.Outcome == oncepipe.Returned {
				return nil
			}
			return settled(key, s)
		},
	})
}
