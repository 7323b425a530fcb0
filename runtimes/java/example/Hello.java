// A function to begin with: snowmelt fn deploy hello Hello.java
import java.util.Map;

public class Hello {
    public static Object handle(Map<String, Object> event) {
        return Map.of("hello", event.getOrDefault("name", "world"));
    }
}
