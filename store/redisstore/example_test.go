package redisstore_test

import (
	"context"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/redisstore"
)

// charge hands the token on, so that the provider knows a repetition.
func charge(ctx context.Context, order string) (receipt string, err error) {
	info, _ := oncepipe.InfoFrom(ctx)
	return "receipt of " + order + " for " + info.Token(), nil
}

func ExampleOpen() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer client.Close()

	st, err := redisstore.Open(ctx, client, redisstore.Config{Prefix: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	once := oncepipe.Once(st, "charge", charge)
	receipt, err := once(oncepipe.WithKey(ctx, "order/42"), "42")
	log.Print(receipt, err)
}
