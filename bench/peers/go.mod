module github.com/oncepipe/oncepipe/bench/peers

go 1.26.0

require (
	github.com/ThreeDotsLabs/watermill v1.5.1
	github.com/alitto/pond/v2 v2.7.1
	github.com/cenkalti/backoff/v4 v4.3.0
	github.com/oncepipe/oncepipe v0.0.0
	github.com/oncepipe/oncepipe/bench v0.0.0
	github.com/panjf2000/ants/v2 v2.12.1
	github.com/samber/ro v0.3.0
	github.com/sourcegraph/conc v0.3.0
)

require (
	codeberg.org/go-fonts/liberation v0.5.0 // indirect
	codeberg.org/go-latex/latex v0.2.0 // indirect
	codeberg.org/go-pdf/fpdf v0.11.1 // indirect
	git.sr.ht/~sbinet/gg v0.7.0 // indirect
	github.com/ajstarks/svgo v0.0.0-20211024235047-1546f124cd8b // indirect
	github.com/cenkalti/backoff/v5 v5.0.3 // indirect
	github.com/golang/freetype v0.0.0-20170609003504-e2365dfdc4a0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/lithammer/shortuuid/v3 v3.0.7 // indirect
	github.com/oklog/ulid v1.3.1 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/samber/lo v1.52.0 // indirect
	github.com/sony/gobreaker v1.0.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.uber.org/multierr v1.9.0 // indirect
	golang.org/x/exp v0.0.0-20220303212507-bbda1eaf7a17 // indirect
	golang.org/x/image v0.30.0 // indirect
	golang.org/x/sync v0.25.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	gonum.org/v1/plot v0.17.0 // indirect
)

replace github.com/oncepipe/oncepipe => ../../

replace github.com/oncepipe/oncepipe/bench => ../

replace github.com/oncepipe/oncepipe/store/pgxstore => ../../store/pgxstore

replace github.com/oncepipe/oncepipe/store/redisstore => ../../store/redisstore
