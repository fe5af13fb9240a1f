package oncepipe_test

import (
	"fmt"

	"github.com/oncepipe/oncepipe"
)

func ExampleRing() {
	g := oncepipe.Ring(2)
	g.Add("order-1", "")
	g.Add("order-2", "")
	g.Add("order-1", "") // again: the newest one from now on
	g.Add("order-3", "")
	for _, key := range []string{"order-1", "order-2", "order-3"} {
		fmt.Println(key, g.Lookup(key, ""))
	}
	// Output:
	// order-1 hit
	// order-2 miss
	// order-3 hit
}

func ExampleLRU() {
	g := oncepipe.LRU(2)
	g.Add("order-1", "")
	g.Add("order-2", "")
	g.Lookup("order-1", "") // a use: order-2 is the oldest one from now on
	g.Add("order-3", "")
	for _, key := range []string{"order-1", "order-2", "order-3"} {
		fmt.Println(key, g.Lookup(key, ""))
	}
	// Output:
	// order-1 hit
	// order-2 miss
	// order-3 hit
}

func ExampleSyncMap() {
	g := oncepipe.SyncMap()
	g.Add("order-1", "amount=10")
	fmt.Println(g.Lookup("order-1", "amount=10"))
	fmt.Println(g.Lookup("order-1", "amount=99"))
	fmt.Println(g.Lookup("order-1", ""))
	g.Remove("order-1")
	fmt.Println(g.Lookup("order-1", "amount=10"))
	// Output:
	// hit
	// mismatch
	// hit
	// miss
}
