// A function that executes socket commands, one per line, and prints the results.
// Started as root, it enters a control group and becomes an ordinary user first.
//
//   function CGROUP_PROCS     its addresses are enforced by its control group
//   function FILTER           its addresses are enforced by the system call filter in this file
//
// Answers are `ok`, `ok VALUE` or `error ERRNO`.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/filter.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static socklen_t address(const char *text, int port, struct sockaddr_storage *to) {
    struct sockaddr_in *v4 = (void *)to;
    struct sockaddr_in6 *v6 = (void *)to;
    memset(to, 0, sizeof *to);
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        return sizeof *v4;
    }
    if (inet_pton(AF_INET6, text, &v6->sin6_addr) != 1) exit(9);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    return sizeof *v6;
}

static void print_result(long result) {
    if (result < 0) printf("error %d\n", errno);
    else printf("ok %ld\n", result);
}

static void print_name(int result, struct sockaddr_storage *name) {
    char text[64];
    if (result < 0) return print_result(result);
    int is6 = name->ss_family == AF_INET6;
    const void *from = is6 ? (void *)&((struct sockaddr_in6 *)name)->sin6_addr
                           : (void *)&((struct sockaddr_in *)name)->sin_addr;
    inet_ntop(name->ss_family, from, text, sizeof text);
    printf("ok %s %d\n", text, ntohs(((struct sockaddr_in *)name)->sin_port));
}

// Tries to send with another source address.
static long send_as(int fd, const char *source, struct sockaddr_storage *to, socklen_t length) {
    char control[CMSG_SPACE(sizeof(struct in_pktinfo))] = {0};
    struct iovec data = {"spoof", 5};
    struct msghdr message = {to, length, &data, 1, control, sizeof control, 0};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = IPPROTO_IP;
    header->cmsg_type = IP_PKTINFO;
    header->cmsg_len = CMSG_LEN(sizeof(struct in_pktinfo));
    inet_pton(AF_INET, source, &((struct in_pktinfo *)CMSG_DATA(header))->ipi_spec_dst);
    return sendmsg(fd, &message, 0);
}

static int wait_for(int fd, int milliseconds) {
    struct pollfd one = {fd, POLLIN, 0};
    if (poll(&one, 1, milliseconds) == 1) return 1;
    errno = ETIMEDOUT;
    return 0;
}

// Connects concurrently from `count` processes, which are killed after some time. Returns how many
// were refused with ENOBUFS.
static int storm(int count, int milliseconds, struct sockaddr_storage *to, socklen_t length) {
    int refused = 0, status;
    for (int i = 0; i < count; i++) {
        if (fork()) continue;
        int fd = socket(to->ss_family, SOCK_STREAM, 0);
        if (fd >= 0 && connect(fd, (void *)to, length) && errno == ENOBUFS) _exit(7);
        for (;;) pause();
    }
    usleep(milliseconds * 1000);
    signal(SIGTERM, SIG_IGN);
    kill(0, SIGTERM);
    signal(SIGTERM, SIG_DFL);
    while (wait(&status) > 0) refused += WIFEXITED(status) && WEXITSTATUS(status) == 7;
    return refused;
}

static void execute(char *verb) {
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    int a = 0, b = 0, c = 0, port = 0;
    char text[64] = "", other[64] = "", buffer[256];
    if (sscanf(verb, "socket %d %d %d", &a, &b, &c) == 3) {
        print_result(socket(a, b, c));
    } else if (sscanf(verb, "bind %d %63s %d", &a, text, &port) == 3) {
        length = address(text, port, &name);
        print_result(bind(a, (void *)&name, length));
    } else if (sscanf(verb, "connect %d %63s %d", &a, text, &port) == 3) {
        struct timeval limit = {1, 0};
        setsockopt(a, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        length = address(text, port, &name);
        print_result(connect(a, (void *)&name, length));
    } else if (sscanf(verb, "storm %d %63s %d %d", &a, text, &port, &b) == 4) {
        length = address(text, port, &name);
        printf("ok %d\n", storm(a, b, &name, length));
    } else if (sscanf(verb, "listen %d %d", &a, &b) == 2) {
        print_result(listen(a, b));
    } else if (sscanf(verb, "listen %d", &a) == 1) {
        print_result(listen(a, 16));
    } else if (sscanf(verb, "accept %d", &a) == 1) {
        if (!wait_for(a, 1000)) return print_result(-1);
        b = accept(a, (void *)&name, &length);
        print_name(b, &name);
    } else if (sscanf(verb, "sendto %d %63s %d", &a, text, &port) == 3) {
        length = address(text, port, &name);
        print_result(sendto(a, "hello", 5, 0, (void *)&name, length));
    } else if (sscanf(verb, "sendmsg %d %63s %d", &a, text, &port) == 3) {
        struct iovec data = {"hello", 5};
        struct msghdr message = {&name, address(text, port, &name), &data, 1, 0, 0, 0};
        print_result(sendmsg(a, &message, 0));
    } else if (sscanf(verb, "sendas %d %63s %63s %d", &a, other, text, &port) == 4) {
        length = address(text, port, &name);
        print_result(send_as(a, other, &name, length));
    } else if (sscanf(verb, "receive %d", &a) == 1) {
        if (!wait_for(a, 500)) return print_result(-1);
        b = recvfrom(a, buffer, sizeof buffer, 0, (void *)&name, &length);
        print_name(b, &name);
    } else if (sscanf(verb, "name %d", &a) == 1) {
        print_name(getsockname(a, (void *)&name, &length), &name);
    } else if (sscanf(verb, "v6only %d", &a) == 1) {
        b = 1;
        print_result(setsockopt(a, IPPROTO_IPV6, IPV6_V6ONLY, &b, sizeof b));
    } else if (sscanf(verb, "reuseport %d", &a) == 1) {
        b = 1;
        print_result(setsockopt(a, SOL_SOCKET, SO_REUSEPORT, &b, sizeof b));
    } else if (sscanf(verb, "freebind %d", &a) == 1) {
        b = 1;
        print_result(setsockopt(a, IPPROTO_IP, IP_FREEBIND, &b, sizeof b));
    } else if (sscanf(verb, "descriptors %d", &a) == 1) {
        struct rlimit most = {a, a};
        print_result(setrlimit(RLIMIT_NOFILE, &most));
    } else if (sscanf(verb, "close %d", &a) == 1) {
        print_result(close(a));
    } else {
        printf("error 0\n");
    }
}

// Installs the filter, prints the listener's descriptor, and continues after a line of input.
static int install_filter(int file) {
    static struct sock_filter code[256];
    char line[16];
    struct sock_fprog program = {read(file, code, sizeof code) / sizeof *code, code};
    int listener = syscall(SYS_seccomp, 1, 1 << 3, &program);
    printf("listener %d\n", listener);
    return listener >= 0 && fgets(line, sizeof line, stdin) && !close(listener);
}

int main(int count, char **words) {
    char line[256];
    int is_group = count > 1 && strstr(words[1], "cgroup.procs") != 0;
    int file = open(words[1], (is_group ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
    if (file < 0 || (is_group && write(file, "0", 1) != 1)) return 3;
    if (setgid(65534) || setuid(65534) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 4;
    setvbuf(stdout, 0, _IOLBF, 0);
    setpgid(0, 0);
    if (!is_group && !install_filter(file)) return 5;
    close(file);
    printf("ready\n");
    while (fgets(line, sizeof line, stdin)) execute(line);
    return 0;
}
