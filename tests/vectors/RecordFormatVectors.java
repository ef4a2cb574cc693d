// Prints record_format.txt: what Kafka's own client writes and hashes, for tests/unit/test_record_batch.py,
// test_key_hash.py and test_compression.py. With the jars of a Kafka release:
//   java -cp 'libs/*' RecordFormatVectors.java > record_format.txt       (made with kafka-clients 4.3.1)

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.utils.Utils;

public class RecordFormatVectors {
    static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    static String hex(byte[] data) {
        return HexFormat.of().formatHex(data);
    }

    static void batch(String name, Compression compression, long id, int epoch, int sequence, boolean transactional) {
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(ByteBuffer.allocate(4096), (byte) 2, compression,
            TimestampType.CREATE_TIME, 0L, -1L, id, (short) epoch, sequence, transactional, false, -1, 4096);
        builder.append(1700000000000L, bytes("key"), bytes("value"), new Header[] {
            new RecordHeader("trace", bytes("abc")), new RecordHeader("n", (byte[]) null),
            new RecordHeader("été", new byte[0])});
        builder.append(1699999999000L, (byte[]) null, bytes("earlier"), new Header[0]);
        builder.append(1700000086400L, bytes(""), (byte[]) null, new Header[0]);
        builder.append(1700000000001L, bytes("k".repeat(64)), bytes("x".repeat(200)), new Header[0]);
        ByteBuffer buffer = builder.build().buffer();
        byte[] written = new byte[buffer.remaining()];
        buffer.get(written);
        System.out.println("batch " + name + " " + hex(written));
    }

    static void murmur2(byte[] key) {
        int hash = Utils.murmur2(key);
        System.out.println("murmur2 " + (key.length == 0 ? "-" : hex(key)) + " " + hash
            + " " + Utils.toPositive(hash) % 6 + " " + Utils.toPositive(hash) % 100003);
    }

    // Hashes of a thousand keys of 0 to 66 bytes from a xorshift generator, folded into one number.
    static int murmur2OfThousand() {
        long state = 88172645463325252L;
        int folded = 0;
        for (int i = 0; i < 1000; i++) {
            byte[] key = new byte[i % 67];
            for (int j = 0; j < key.length; j++) {
                state ^= state << 13;
                state ^= state >>> 7;
                state ^= state << 17;
                key[j] = (byte) state;
            }
            folded = folded * 31 + Utils.murmur2(key);
        }
        return folded;
    }

    public static void main(String[] arguments) {
        batch("plain", Compression.NONE, -1, -1, -1, false);
        batch("idempotent", Compression.NONE, 4611686018427387905L, 7, 2147483646, false);
        batch("transactional", Compression.NONE, 1234, 0, 0, true);
        batch("gzip", Compression.gzip().build(), -1, -1, -1, false);
        batch("snappy", Compression.snappy().build(), -1, -1, -1, false);
        batch("lz4", Compression.lz4().build(), -1, -1, -1, false);
        batch("zstd", Compression.zstd().build(), -1, -1, -1, false);
        String[] keys = {"", "a", "ab", "abc", "abcd", "21", "foobar", "a-little-bit-long-string",
            "a-little-bit-longer-string", "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
            "été-日本-🙂", "customer-7"};
        for (String key : keys) murmur2(bytes(key));
        byte[] high = {(byte) 0xff, (byte) 0x80, (byte) 0xfe, (byte) 0x81, (byte) 0xff, (byte) 0x7f, (byte) 0x90};
        for (int size = 1; size <= high.length; size++) murmur2(Arrays.copyOf(high, size));
        System.out.println("murmur2-of-thousand " + murmur2OfThousand());
    }
}
