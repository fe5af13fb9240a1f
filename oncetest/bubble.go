package oncetest

import (
	"fmt"

	"github.com/oncepipe/oncepipe/internal/bubble"
)

// inBubble runs f in a synctest bubble. The error is f's panic, or says that
// goroutines were left that nothing can wake any more; these stay for ever.
func inBubble(f func()) error {
	if err := bubble.Run(func() error { f(); return nil }); err != nil {
		return fmt.Errorf("oncetest: %w", err)
	}
	return nil
}
