package snowmelt;

import java.io.File;
import java.io.IOException;
import java.io.StringWriter;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Stream;
import javax.tools.Diagnostic;
import javax.tools.DiagnosticCollector;
import javax.tools.JavaCompiler;
import javax.tools.JavaFileObject;
import javax.tools.ToolProvider;

/**
 * The user's class with its method {@code handle}, which has one parameter: static, or of an
 * instance that is made once.
 *
 * <p>The class path is the folder of the code, its archives and those in its {@code lib}. Source
 * files are compiled first, which needs a JDK and about a second.
 */
final class Handler {
    private static final Path CLASSES = Path.of("/tmp/snowmelt-classes");

    private final Method method;
    private final Object instance;

    private Handler(Method method, Object instance) {
        this.method = method;
        this.instance = instance;
    }

    static Handler load(String folder, String name) throws Failure {
        try {
            List<URL> path = classPath(Path.of(folder));
            Class<?> found = Class.forName(name, true, new URLClassLoader(path.toArray(URL[]::new)));
            return of(found);
        } catch (ClassNotFoundException error) {
            throw new Failure("load", "there is no class " + name + " in the code", null);
        } catch (IOException | ReflectiveOperationException | LinkageError error) {
            Throwable cause = error.getCause();
            boolean wrapped = error instanceof InvocationTargetException
                    || error instanceof ExceptionInInitializerError;
            throw Failure.of("load", wrapped && cause != null ? cause : error, null);
        }
    }

    private static Handler of(Class<?> found) throws Failure, ReflectiveOperationException {
        for (Method method : found.getMethods()) {
            if (method.getName().equals("handle") && method.getParameterCount() == 1
                    && !method.isBridge()) {
                method.setAccessible(true);
                boolean needsNone = Modifier.isStatic(method.getModifiers());
                return new Handler(method, needsNone ? null : instance(found));
            }
        }
        String name = found.getName();
        throw new Failure("load", name + " has no public method handle with one parameter", null);
    }

    private static Object instance(Class<?> found) throws ReflectiveOperationException {
        var constructor = found.getDeclaredConstructor();
        constructor.setAccessible(true);
        return constructor.newInstance();
    }

    /** The method's value for an event. */
    Object call(Object event) throws Failure {
        Class<?> wanted = method.getParameterTypes()[0];
        if (event == null ? wanted.isPrimitive() : !boxed(wanted).isInstance(event)) {
            String got = event == null ? "null" : event.getClass().getSimpleName();
            throw new Failure("type", "handle takes " + wanted.getSimpleName()
                    + ", and the event is " + got, event);
        }
        try {
            return Json.checked(method.invoke(instance, event));
        } catch (InvocationTargetException error) {
            throw Failure.of("raised", error.getCause(), event);
        } catch (Json.NotJson error) {
            throw new Failure("type", error.getMessage(), event);
        } catch (IllegalAccessException | StackOverflowError | OutOfMemoryError error) {
            throw Failure.of("raised", error, event);
        }
    }

    private static Class<?> boxed(Class<?> wanted) {
        if (wanted == long.class) return Long.class;
        if (wanted == double.class) return Double.class;
        return wanted == boolean.class ? Boolean.class : wanted;
    }

    private static List<URL> classPath(Path folder) throws IOException, Failure {
        List<Path> path = new ArrayList<>(List.of(folder));
        path.addAll(ending(folder, ".jar"));
        path.addAll(ending(folder.resolve("lib"), ".jar"));
        List<Path> sources = ending(folder, ".java");
        if (!sources.isEmpty()) {
            path.add(0, compile(sources, path));
        }
        List<URL> urls = new ArrayList<>();
        for (Path one : path) {
            urls.add(url(one));
        }
        return urls;
    }

    private static List<Path> ending(Path folder, String end) throws IOException {
        if (!Files.isDirectory(folder)) {
            return List.of();
        }
        try (Stream<Path> entries = Files.list(folder)) {
            return entries.filter(entry -> entry.toString().endsWith(end)).sorted().toList();
        }
    }

    private static URL url(Path path) throws MalformedURLException {
        return path.toUri().toURL();
    }

    private static Path compile(List<Path> sources, List<Path> path) throws IOException, Failure {
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        if (compiler == null) {
            throw new Failure("load", "this Java has no compiler: deploy class files or a jar", null);
        }
        Files.createDirectories(CLASSES);
        String joined = String.join(File.pathSeparator, path.stream().map(Path::toString).toList());
        List<String> options =
                Arrays.asList("-d", CLASSES.toString(), "-cp", joined, "-proc:none", "-g", "-nowarn");
        var found = new DiagnosticCollector<JavaFileObject>();
        var files = compiler.getStandardFileManager(null, null, null);
        var units = files.getJavaFileObjectsFromPaths(sources);
        if (!compiler.getTask(new StringWriter(), files, found, options, null, units).call()) {
            throw refused(found.getDiagnostics());
        }
        return CLASSES;
    }

    private static Failure refused(List<Diagnostic<? extends JavaFileObject>> found) {
        for (var one : found) {
            if (one.getKind() == Diagnostic.Kind.ERROR) {
                String file = one.getSource() == null ? "?"
                        : Path.of(one.getSource().getName()).getFileName().toString();
                String reason = one.getMessage(null).lines().findFirst().orElse("error");
                return new Failure("load", "error: " + reason, null).at(file, one.getLineNumber());
            }
        }
        return new Failure("load", "the code cannot be compiled", null);
    }
}
