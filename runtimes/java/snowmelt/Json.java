package snowmelt;

import java.lang.reflect.Array;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * JSON, for Java has none: null, Boolean, Long, Double, String, List and Map; a whole number that
 * no long can hold is a Double.
 */
final class Json {
    private static final int DEEPEST = 500;

    /** A value that has no form in JSON. */
    static final class NotJson extends RuntimeException {
        private static final long serialVersionUID = 1;

        NotJson(String message) {
            super(message);
        }
    }

    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    static Object parse(String text) {
        Json parser = new Json(text);
        Object value = parser.value(0);
        parser.space();
        if (parser.at < text.length()) {
            throw parser.wrong("something follows the value");
        }
        return value;
    }

    static String write(Object value) {
        StringBuilder out = new StringBuilder();
        write(value, out, 0);
        return out.toString();
    }

    /** The value, once it is known that it can be written. */
    static Object checked(Object value) {
        write(value);
        return value;
    }

    private Object value(int depth) {
        space();
        if (depth > DEEPEST || at >= text.length()) {
            throw wrong(depth > DEEPEST ? "it is nested too deeply" : "it ends too early");
        }
        switch (text.charAt(at)) {
            case '{': return object(depth);
            case '[': return list(depth);
            case '"': return string();
            case 't': return word("true", true);
            case 'f': return word("false", false);
            case 'n': return word("null", null);
            default: return number();
        }
    }

    private Map<String, Object> object(int depth) {
        Map<String, Object> object = new LinkedHashMap<>();
        at++;
        space();
        if (taken('}')) return object;
        do {
            space();
            String name = string();
            space();
            expect(':');
            object.put(name, value(depth + 1));
            space();
        } while (taken(','));
        expect('}');
        return object;
    }

    private List<Object> list(int depth) {
        List<Object> list = new ArrayList<>();
        at++;
        space();
        if (taken(']')) return list;
        do {
            list.add(value(depth + 1));
            space();
        } while (taken(','));
        expect(']');
        return list;
    }

    private String string() {
        expect('"');
        StringBuilder string = new StringBuilder();
        while (at < text.length()) {
            char c = text.charAt(at++);
            if (c == '"') return string.toString();
            string.append(c == '\\' ? escaped() : c);
        }
        throw wrong("a text has no end");
    }

    private char escaped() {
        char c = at < text.length() ? text.charAt(at++) : ' ';
        switch (c) {
            case 'b': return '\b';
            case 'f': return '\f';
            case 'n': return '\n';
            case 'r': return '\r';
            case 't': return '\t';
            case '"': case '\\': case '/': return c;
            case 'u':
                try {
                    char unit = (char) Integer.parseInt(text.substring(at, at + 4), 16);
                    at += 4;
                    return unit;
                } catch (IndexOutOfBoundsException | NumberFormatException error) {
                    throw wrong("\\u needs four digits");
                }
            default: throw wrong("there is no \\" + c);
        }
    }

    private Object word(String word, Object value) {
        if (!text.startsWith(word, at)) throw wrong("no such word");
        at += word.length();
        return value;
    }

    private Object number() {
        int from = at;
        while (at < text.length() && "+-.eE0123456789".indexOf(text.charAt(at)) >= 0) at++;
        String number = text.substring(from, at);
        try {
            return Long.valueOf(number);
        } catch (NumberFormatException whole) {
            try {
                return Double.valueOf(number);
            } catch (NumberFormatException error) {
                throw wrong("no value");
            }
        }
    }

    private void space() {
        while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) at++;
    }

    private boolean taken(char c) {
        boolean there = at < text.length() && text.charAt(at) == c;
        if (there) at++;
        return there;
    }

    private void expect(char c) {
        if (!taken(c)) throw wrong("'" + c + "' is missing");
    }

    private IllegalArgumentException wrong(String reason) {
        return new IllegalArgumentException("not JSON at " + at + ": " + reason);
    }

    private static void write(Object value, StringBuilder out, int depth) {
        if (depth > DEEPEST) {
            throw new NotJson("it is nested too deeply, or holds itself");
        }
        if (value instanceof CharSequence || value instanceof Character || value instanceof Enum<?>) {
            writeText(value.toString(), out);
        } else if (value instanceof Map<?, ?> map) {
            String before = "{";
            for (var entry : map.entrySet()) {
                out.append(before);
                writeText(String.valueOf(entry.getKey()), out);
                write(entry.getValue(), out.append(':'), depth + 1);
                before = ",";
            }
            out.append(map.isEmpty() ? "{}" : "}");
        } else if (value instanceof Iterable<?> values) {
            String before = "[";
            for (Object one : values) {
                write(one, out.append(before), depth + 1);
                before = ",";
            }
            out.append(before.equals("[") ? "[]" : "]");
        } else if (value != null && value.getClass().isArray()) {
            List<Object> values = new ArrayList<>();
            for (int i = 0; i < Array.getLength(value); i++) values.add(Array.get(value, i));
            write(values, out, depth);
        } else {
            writePlain(value, out);
        }
    }

    private static void writePlain(Object value, StringBuilder out) {
        boolean endless = value instanceof Double d && !Double.isFinite(d)
                || value instanceof Float f && !Float.isFinite(f);
        if (endless || value != null && !(value instanceof Boolean) && !(value instanceof Number)) {
            throw new NotJson("a value of " + value.getClass().getName() + " (" + value
                    + ") is not JSON: return null, Boolean, Number, String, List or Map");
        }
        out.append(value);
    }

    private static void writeText(String text, StringBuilder out) {
        out.append('"');
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ' || Character.isSurrogate(c) && !paired(text, i)) {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }

    private static boolean paired(String text, int i) {
        char c = text.charAt(i);
        return Character.isHighSurrogate(c)
                ? i + 1 < text.length() && Character.isLowSurrogate(text.charAt(i + 1))
                : i > 0 && Character.isHighSurrogate(text.charAt(i - 1));
    }
}
