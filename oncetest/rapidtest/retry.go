package rapidtest

import (
	"pgregory.net/rapid"

	"github.com/oncepipe/oncepipe/oncetest"
)

// Retry checks the laws of retrying with one schedule, and fails t with the laws
// that are broken. See oncetest.Retry; how many schedules there are, and of
// which seed, is rapid's affair. Like that one, it must not be called inside a bubble.
func Retry(t *rapid.T, laws oncetest.RetryLaws) {
	t.Helper()
	if err := laws.Try(draw(t)); err != nil {
		t.Log(err)
		t.Fatal("laws of retrying are broken") // the same for all: rapid only makes smaller what fails in the same way
	}
}
