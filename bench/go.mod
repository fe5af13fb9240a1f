module github.com/oncepipe/oncepipe/bench

go 1.26.0

require (
	github.com/hashicorp/golang-lru/v2 v2.0.7
	github.com/oncepipe/oncepipe v0.0.0
)

require github.com/cenkalti/backoff/v4 v4.3.0 // indirect

replace github.com/oncepipe/oncepipe => ../
