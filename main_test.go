package oncepipe

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("rapid.nofailfile", "true"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	goleak.VerifyTestMain(m)
}

// check is rapid.Check with a number of runs that fits what one costs, as long
// as nobody asked for another number.
func check(t *testing.T, runs int, prop func(*rapid.T)) {
	t.Helper()
	f := flag.Lookup("rapid.checks")
	if old := f.Value.String(); old == f.DefValue {
		if testing.Short() {
			runs = max(1, runs/4)
		}
		if err := f.Value.Set(strconv.Itoa(runs)); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Value.Set(old) }()
	}
	rapid.Check(t, prop)
}
