package oncepipe_test

import (
	"fmt"
	"strings"

	"github.com/oncepipe/oncepipe"
)

func ExampleKey() {
	fmt.Println(oncepipe.Key("order", "42"))
	fmt.Println(oncepipe.Key("a", "b/c"))
	fmt.Println(oncepipe.Key("a/b", "c"))
	// Output:
	// order/42
	// a/b%2Fc
	// a%2Fb/c
}

// A reminder has no id of its own: its content is its identity.
func ExampleContentKey() {
	type reminder struct {
		To   string `json:"to"`
		Text string `json:"text"`
	}
	key, err := oncepipe.ContentKey(reminder{To: "ann@example.com", Text: "Your order is on its way."})
	fmt.Println(key, err)

	same, err := oncepipe.ContentKey(map[string]string{"text": "Your order is on its way.", "to": "ann@example.com"})
	fmt.Println(same == key, err)

	_, err = oncepipe.ContentKey(reminder{To: "ann@example.com", Text: "cut in a charac\xc3"})
	fmt.Println(err)
	// Output:
	// c1:ae40717b1a50ba330478ba5984757d6248f4992f6d86b30a5b587e821c67c049 <nil>
	// true <nil>
	// oncepipe: no canonical JSON: invalid UTF-8, or U+FFFD from a MarshalJSON, in "/Text"
}

func ExampleContentKeyJSON() {
	sent, _ := oncepipe.ContentKeyJSON([]byte(`{"id": 9007199254740993, "items": [1, 2]}`))
	again, _ := oncepipe.ContentKeyJSON([]byte(`{"items":[1,2],"id":9007199254740993}`))
	other, _ := oncepipe.ContentKeyJSON([]byte(`{"items":[1,2],"id":9007199254740992}`))
	fmt.Println(sent == again, sent == other)

	_, err := oncepipe.ContentKeyJSON([]byte(`{"items":[{"sku":"a","sku":"b"}]}`))
	fmt.Println(err)
	// Output:
	// true false
	// oncepipe: no canonical JSON: a name occurs twice at byte 21, in "/items/0/sku"
}

func ExampleStorageKey() {
	fmt.Println(oncepipe.StorageKey("order/42"))
	fmt.Println(oncepipe.StorageKey(strings.Repeat("long", 100)))
	// Output:
	// order/42
	// ~sha256:0184fa9ce314e3d79dfecc814264a454a4e5df48a84d86152079dba576c5f16a
}

func ExampleStoredID() {
	long := oncepipe.RecordID{Namespace: "orders/charge", Key: strings.Repeat("k", 300)}
	listed := oncepipe.StoredID(long.StorageForm()) // what List returns for it
	fmt.Println(listed.Stored, len(listed.Key))
	fmt.Println(oncepipe.StoredID("orders/charge", "order-42").Stored)
	// Output:
	// true 72
	// false
}
