package snowmelt;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * What the platform is told when user code fails; docs/reference/runtimes.md has its fields.
 *
 * <p>Invariant: only the user's own frames are shown, those of the runtime and of Java are not.
 */
final class Failure extends Exception {
    private static final long serialVersionUID = 1;
    private static final int TEXT_CHARACTERS = 2000, INPUT_CHARACTERS = 200, FRAMES = 20;

    private final Map<String, Object> fields = new LinkedHashMap<>();

    Failure(String kind, String exception, Object event) {
        super(exception, null, false, false);
        fields.put("kind", kind);
        fields.put("exception", shortened(exception, TEXT_CHARACTERS));
        if (event != null) {
            fields.put("input", "event = " + shortened(Json.write(event), INPUT_CHARACTERS));
        }
        fields.put("failed", 1L);
        fields.put("calls", 1L);
    }

    /** The failure that a throwable of the user's code means. */
    static Failure of(String kind, Throwable error, Object event) {
        String limit = limit(error);
        boolean raised = kind.equals("raised");
        Failure failure = new Failure(raised && limit != null ? limit : kind, line(error), event);
        List<String> trace = new ArrayList<>();
        for (StackTraceElement frame : error.getStackTrace()) {
            if (isUsers(frame) && trace.size() < FRAMES) {
                String within = frame.getClassName() + "." + frame.getMethodName() + "()";
                if (trace.isEmpty()) {
                    failure.at(frame.getFileName(), frame.getLineNumber()).within(within);
                }
                trace.add(frame.getFileName() + ":" + frame.getLineNumber() + " in " + within);
            }
        }
        trace.add(line(error));
        if (error.getCause() != null && error.getCause() != error) {
            trace.add("caused by " + line(error.getCause()));
        }
        failure.fields.put("traceback", trace);
        return failure;
    }

    Failure at(String file, long line) {
        Map<String, Object> location = new LinkedHashMap<>();
        location.put("file", file == null ? "?" : file);
        location.put("line", Math.max(line, 1));
        fields.put("location", location);
        return this;
    }

    @SuppressWarnings("unchecked")
    private void within(String name) {
        ((Map<String, Object>) fields.get("location")).put("within", name);
    }

    Map<String, Object> message(String function) {
        fields.put("function", function);
        return fields;
    }

    /** Which limit of the sandbox is behind it; null if none is. */
    private static String limit(Throwable error) {
        String text = String.valueOf(error.getMessage());
        if (error instanceof OutOfMemoryError) {
            return text.contains("native thread") ? "processes" : "memory";
        }
        if (text.contains("No space left on device")) {
            return "scratch";
        }
        return text.contains("Too many open files") ? "files" : null;
    }

    private static String line(Throwable error) {
        String name = error.getClass().getSimpleName();
        String text = error.getMessage() == null ? "" : error.getMessage().replaceAll("\\s+", " ");
        return text.isEmpty() ? name : name + ": " + text;
    }

    private static boolean isUsers(StackTraceElement frame) {
        String name = frame.getClassName();
        return frame.getModuleName() == null && !name.startsWith("snowmelt.");
    }

    private static String shortened(String text, int most) {
        return text.length() <= most ? text : text.substring(0, most - 1) + "…";
    }
}
