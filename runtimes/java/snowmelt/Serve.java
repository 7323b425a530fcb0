package snowmelt;

import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.Channels;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * The process inside a sandbox that runs a user's Java code: {@code snowmelt.Serve FOLDER CLASS}.
 *
 * <p>A thread for each connection; docs/reference/runtimes.md has the dialogue. The class is loaded once,
 * however many connections ask. Invariant: what comes over one connection ends at most that
 * connection, and each call gets exactly one answer.
 */
public final class Serve {
    private static final int LOAD = 1, READY = 2, CALL = 3, RETURN = 4, FAILURE = 5, END = 8;
    private static final int HEADER_BYTES = 8;
    private static final int MAX_BYTES = 256 << 20;
    /** The longest answer that the platform takes. */
    private static final int MAX_ANSWER_BYTES = 64 << 20;

    private final String folder;
    private Handler handler;

    private Serve(String folder) {
        this.folder = folder;
    }

    public static void main(String[] arguments) throws IOException {
        if (!(System.inheritedChannel() instanceof ServerSocketChannel listener)) {
            throw new IOException("standard input is no listening socket");
        }
        Serve serve = new Serve(arguments[0]);
        while (true) {
            SocketChannel connected = listener.accept();
            Thread thread = new Thread(() -> serve.connection(connected));
            thread.setDaemon(true);
            thread.start();
        }
    }

    private void connection(SocketChannel connected) {
        try (connected) {
            DataInputStream in = new DataInputStream(Channels.newInputStream(connected));
            OutputStream out = new BufferedOutputStream(Channels.newOutputStream(connected));
            converse(in, out);
        } catch (IOException | RuntimeException error) {
            System.err.println("snowmelt: " + error.getMessage());
        }
    }

    private void converse(DataInputStream in, OutputStream out) throws IOException {
        Handler loaded = null;
        String name = "";
        ByteBuffer header = ByteBuffer.allocate(HEADER_BYTES).order(ByteOrder.LITTLE_ENDIAN);
        while (in.readNBytes(header.array(), 0, HEADER_BYTES) == HEADER_BYTES) {
            int length = header.getInt(0);
            if (length < 0 || length > MAX_BYTES) {
                throw new IOException("a frame is longer than any may be");
            }
            int kind = header.get(4);
            byte[] payload = in.readNBytes(length);
            if (payload.length < length) {
                throw new EOFException("the connection was closed inside a frame");
            }
            if (kind == END) {
                return;
            }
            Map<?, ?> message = (Map<?, ?>) Json.parse(new String(payload, StandardCharsets.UTF_8));
            try {
                if (kind == LOAD) {
                    name = String.valueOf(message.get("function"));
                    loaded = load(name);
                    send(out, READY, bytes(Map.of("pid", ProcessHandle.current().pid())));
                } else if (kind == CALL && loaded != null) {
                    send(out, RETURN, answer(loaded, message.get("event")));
                } else {
                    throw new IOException("a frame of kind " + kind + " came where none was due");
                }
            } catch (Failure failure) {
                send(out, FAILURE, bytes(failure.message(name)));
            }
        }
    }

    private synchronized Handler load(String name) throws Failure {
        if (handler == null) {
            handler = Handler.load(folder, name);
        }
        return handler;
    }

    private static byte[] answer(Handler loaded, Object event) throws Failure {
        byte[] payload = bytes(loaded.call(event));
        if (payload.length > MAX_ANSWER_BYTES) {
            throw new Failure("type", "its answer has " + payload.length + " bytes, and "
                    + MAX_ANSWER_BYTES + " are the most", null);
        }
        return payload;
    }

    private static byte[] bytes(Object message) {
        return Json.write(message).getBytes(StandardCharsets.UTF_8);
    }

    private static void send(OutputStream out, int kind, byte[] payload) throws IOException {
        System.out.flush();
        ByteBuffer header = ByteBuffer.allocate(HEADER_BYTES).order(ByteOrder.LITTLE_ENDIAN);
        header.putInt(0, payload.length).put(4, (byte) kind);
        out.write(header.array());
        out.write(payload);
        out.flush();
    }
}
