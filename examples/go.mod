module github.com/oncepipe/oncepipe/examples

go 1.26.0

require github.com/oncepipe/oncepipe v0.0.0

replace github.com/oncepipe/oncepipe => ../
