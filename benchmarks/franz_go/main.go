// A producer with franz-go (https://github.com/twmb/franz-go), for the comparison in benchmarks/.
//
// benchmarks/clients/franz_go_client.py builds and calls it. It reads its settings from flags, sends the lines of a
// file over and over, and prints one JSON line. The clocks run only over the measured part, after -warmup records.
// CPU time is that of all threads of this process.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fail(err)
	}
	seconds := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return seconds(usage.Utime) + seconds(usage.Stime)
}

// resident returns a memory figure of /proc/self/status, in bytes.
func resident(name string) int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		fail(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		var kilobytes int64
		if strings.HasPrefix(line, name) {
			if _, err := fmt.Sscanf(line[len(name):], "%d", &kilobytes); err != nil {
				fail(err)
			}
			return kilobytes * 1024
		}
	}
	return 0
}

func readValues(path string) [][]byte {
	file, err := os.Open(path)
	if err != nil {
		fail(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	var values [][]byte
	for lines.Scan() {
		values = append(values, append([]byte(nil), lines.Bytes()...))
	}
	if len(values) == 0 {
		fail(fmt.Errorf("no values in %s", path))
	}
	return values
}

func codec(name string) kgo.CompressionCodec {
	switch name {
	case "lz4":
		return kgo.Lz4Compression()
	case "zstd":
		return kgo.ZstdCompression()
	case "gzip":
		return kgo.GzipCompression()
	case "snappy":
		return kgo.SnappyCompression()
	}
	return kgo.NoCompression()
}

// send produces count records with a callback each, waits for all, and returns how many were acknowledged.
func send(client *kgo.Client, topic string, values [][]byte, count int) int64 {
	var acknowledged atomic.Int64
	var all sync.WaitGroup
	all.Add(count)
	promise := func(_ *kgo.Record, err error) {
		if err != nil {
			fail(err)
		}
		acknowledged.Add(1)
		all.Done()
	}
	for i := 0; i < count; i++ {
		client.Produce(context.Background(), &kgo.Record{Topic: topic, Value: values[i%len(values)]}, promise)
	}
	all.Wait()
	return acknowledged.Load()
}

// paced sends at a fixed rate; a record's latency counts from the instant at which it was due.
func paced(client *kgo.Client, topic string, values [][]byte, count, rate int) []float64 {
	latencies := make([]float64, count)
	var all sync.WaitGroup
	all.Add(count)
	began := time.Now()
	for i := 0; i < count; i++ {
		due := began.Add(time.Duration(float64(i) / float64(rate) * 1e9))
		time.Sleep(time.Until(due))
		client.Produce(context.Background(), &kgo.Record{Topic: topic, Value: values[i%len(values)]},
			func(_ *kgo.Record, err error) {
				if err != nil {
					fail(err)
				}
				latencies[i] = time.Since(due).Seconds() * 1e3
				all.Done()
			})
	}
	all.Wait()
	return latencies
}

func main() {
	servers := flag.String("bootstrap", "", "host:port,...")
	topic := flag.String("topic", "bench", "")
	path := flag.String("values", "", "a file of values, one a line")
	records := flag.Int("records", 1000000, "")
	warmup := flag.Int("warmup", 100000, "")
	batch := flag.Int("batch", 65536, "")
	linger := flag.Int("linger", 5, "milliseconds")
	memory := flag.Int("memory", 32<<20, "")
	acks := flag.String("acks", "all", "all or 1")
	compression := flag.String("compression", "none", "")
	rate := flag.Int("rate", 0, "records per second; 0 for as fast as it can")
	flag.Parse()

	values := readValues(*path)
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(*servers, ",")...),
		kgo.ProducerBatchMaxBytes(int32(*batch)),
		kgo.ProducerLinger(time.Duration(*linger) * time.Millisecond),
		kgo.ProducerBatchCompression(codec(*compression)),
		kgo.MaxBufferedBytes(*memory),
		kgo.MaxBufferedRecords(1 << 30),
		kgo.RecordDeliveryTimeout(2 * time.Minute),
	}
	if *acks == "all" {
		options = append(options, kgo.RequiredAcks(kgo.AllISRAcks()))
	} else {
		options = append(options, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		fail(err)
	}
	defer client.Close()

	total := send(client, *topic, values, 1)
	start := resident("VmRSS:")
	total += send(client, *topic, values, *warmup)
	runtime.GC()
	cpu, began := cpuSeconds(), time.Now()
	figures := map[string]float64{}
	var counted int64
	if *rate > 0 {
		latencies := paced(client, *topic, values, *records+*rate, *rate)[*rate:]
		counted = int64(len(latencies) + *rate)
		sort.Float64s(latencies)
		for name, share := range map[string]float64{"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1} {
			figures["latency_"+name+"_ms"] = latencies[max(0, int(float64(len(latencies))*share+0.5)-1)]
		}
	} else {
		counted = send(client, *topic, values, *records)
	}
	seconds, burnt := time.Since(began).Seconds(), cpuSeconds()-cpu
	version := ""
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, module := range build.Deps {
			if module.Path == "github.com/twmb/franz-go" {
				version = module.Version
			}
		}
	}
	answer := map[string]any{
		"version": version,
		"outcome": map[string]any{
			"records": counted, "total": total + counted, "seconds": seconds, "cpu_seconds": burnt,
			"rss_start": start, "rss_peak": resident("VmHWM:"), "figures": figures,
		},
	}
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		fail(err)
	}
}
