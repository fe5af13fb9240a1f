package oncetest_test

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/oncepipe/oncepipe/oncetest"
)

// The key joins a tenant and a name, each of which may have a slash in it.
func ExampleCheckKeys() {
	type upload struct {
		Tenant, Name string
		Attempt      int
	}
	err := oncetest.CheckKeys(oncetest.KeyFunc[upload]{
		Key: func(u upload) string { return u.Tenant + "/" + u.Name },
		Message: func(id, copy int) upload {
			return upload{Tenant: "acme", Name: strconv.Itoa(id) + ".pdf", Attempt: copy + 1}
		},
		Fields: []string{"tenant", "name"},
		Build:  func(v []string) upload { return upload{Tenant: v[0], Name: v[1]} },
	})
	fmt.Println(err)
	// Output:
	// delimiter: two messages have one key
	// 	"a/a/a" for tenant="a/a" name="a": {Tenant:a/a Name:a Attempt:0}
	// 	"a/a/a" for tenant="a" name="a/a": {Tenant:a Name:a/a Attempt:0}
	// 	and 1 more
}

// The sender numbers its attempts, which the key counts in, and its numbers lose
// digits as float64.
func ExampleCheckJSONKeys() {
	err := oncetest.CheckJSONKeys(oncetest.JSONKeyFunc{
		Key: func(doc []byte) string {
			var fields map[string]any
			if json.Unmarshal(doc, &fields) != nil {
				return ""
			}
			return fmt.Sprint(fields) // sorted by name
		},
		Documents: [][]byte{[]byte(`{"id": 17, "item": "book", "attempt": 1}`)},
		Identity:  []string{"/id", "/item"},
	})
	fmt.Println(err)
	// Output:
	// metadata: one message has two keys
	// 	"map[attempt:1 id:17 item:book]" for document 0: {"id": 17, "item": "book", "attempt": 1}
	// 	"map[attempt:2 id:17 item:book]" for document 0 with /attempt = 2: {"id":17,"item":"book","attempt":2}
	// big numbers: two messages have one key
	// 	"map[attempt:1 id:9.007199254740992e+15 item:book]" for document 0 with /id = 9007199254740992: {"id":9007199254740992,"item":"book","attempt":1}
	// 	"map[attempt:1 id:9.007199254740992e+15 item:book]" for document 0 with /id = 9007199254740993: {"id":9007199254740993,"item":"book","attempt":1}
	// 	and 1 more
}
