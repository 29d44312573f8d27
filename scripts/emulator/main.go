// Google's in-memory server of Bigtable's API as a program, for machines that have Google's Go
// packages (Debian: golang-google-cloud-dev) and not the program cbtemulator, which is the same
// server of a later date. scripts/emulator.sh builds it, and reads the line that it prints.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"

	"cloud.google.com/go/bigtable/bttest"
	admin "google.golang.org/genproto/googleapis/bigtable/admin/v2"
	"google.golang.org/grpc"
)

// As in cbtemulator: a message may hold a cell of the largest size, and more.
const messageBytesMax = 256 << 20

func main() {
	host := flag.String("host", "127.0.0.1", "the address to listen at")
	port := flag.Int("port", 0, "the port to listen at; 0 takes a free one")
	flag.Parse()
	server, err := bttest.NewServer(
		fmt.Sprintf("%s:%d", *host, *port),
		grpc.MaxRecvMsgSize(messageBytesMax),
		grpc.MaxSendMsgSize(messageBytesMax),
		grpc.UnaryInterceptor(withFamilies),
	)
	if err != nil {
		log.Fatalf("cannot serve at %s:%d: %v", *host, *port, err)
	}
	fmt.Printf("Cloud Bigtable emulator running on %s\n", server.Addr)
	select {}
}

// Of a family without settings some languages send the name alone, as they may. The server of this
// date ends when it meets one.
func withFamilies(
	ctx context.Context, request interface{}, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (interface{}, error) {
	if create, ok := request.(*admin.CreateTableRequest); ok {
		families := create.GetTable().GetColumnFamilies()
		for name, settings := range families {
			if settings == nil {
				families[name] = &admin.ColumnFamily{}
			}
		}
		// Nor does it do without a table.
		if create.Table == nil {
			create.Table = &admin.Table{}
		}
	}
	return next(ctx, request)
}
