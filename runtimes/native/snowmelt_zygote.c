/* The zygote's loop, and the set-up of a forked child in its own sandbox (SOCK 4.2, relocation).
 *
 * Raw system calls only: the child writes almost no memory of the zygote before its set-up is done,
 * because each page that it writes would be copied. The other side is
 * crates/sandbox/src/spawner/service/fork.rs, which makes scratch, channel, log and control group
 * while this process forks.
 *
 * A child receives two packets: the inputs of its set-up, and then its entries. Between the two it
 * may wait for any time: such a preforked child serves a request without a fork.
 *
 * Invariant: privileges only decrease, and the system call filter comes last. A child takes its own
 * user id and its own namespaces before it reads anything, and runs its entry only after the
 * spawner has confirmed that it is in its control group. This process and its children mount
 * nothing: they have run the imports, and later the functions, of users, whose filter allows no
 * call for it. The spawner attaches what they see (crates/sandbox/src/spawner/service/zygote_mounts.rs).
 */
#include "snowmelt_zygote.h"
#include "snowmelt_internals.h"
#include "syscalls.h"
#include "weaken.h"

/* Its socket pair with the spawner, while it waits for its entries. */
#define WAITING_FD (SNOWMELT_CHANNEL_FD + 1)

struct child {
	int pid;
	u64 token;
};

static struct {
	int control, signals, proc, pid_namespace, landlock;
	int roots[MAX_ROOTS]; /* mount namespaces; 0 if unused */
	u64 mask;	       /* signals that were blocked at the start */
	int children;	       /* used length of the table */
	struct child table[MAX_CHILDREN];
} zygote;

static char packet[LONGEST_PACKET];

/* ---- packets ---- */

struct slice {
	const void *start;
	unsigned long length;
};

struct message {
	void *name;
	u32 name_length;
	struct slice *slices;
	unsigned long slice_count;
	void *ancillary;
	unsigned long ancillary_length;
	u32 flags;
};

struct waiting {
	int fd;
	short wanted, found;
};

struct ancillary {
	unsigned long length;
	int level, type;
	int fds[MAX_FDS];
};

struct filter {
	unsigned short length; /* in instructions */
	const void *start;
};

#define SAME(what, as_in_rust) _Static_assert((what) == (as_in_rust), "not as in Rust")
SAME(sizeof(struct slice), SLICE_SIZE);
SAME(sizeof(struct message), MESSAGE_SIZE);
SAME(__builtin_offsetof(struct message, slices), MESSAGE_SLICES);
SAME(__builtin_offsetof(struct message, ancillary), MESSAGE_ANCILLARY);
SAME(__builtin_offsetof(struct message, flags), MESSAGE_FLAGS);
SAME(__builtin_offsetof(struct ancillary, type), ANCILLARY_TYPE);
SAME(__builtin_offsetof(struct ancillary, fds), ANCILLARY_HEADER_SIZE);
SAME(sizeof(struct waiting), WAITING_SIZE);
SAME(__builtin_offsetof(struct waiting, found), WAITING_FOUND);
SAME(sizeof(struct filter), FILTER_SIZE);
SAME(__builtin_offsetof(struct filter, start), FILTER_START);

/* Receives one packet: its length, and its descriptors in the order in which they were sent. */
static long receive(int socket, void *start, unsigned long most, int *fds, int *fd_count)
{
	struct slice slice = {start, most};
	struct ancillary ancillary;
	struct message message = {0, 0, &slice, 1, &ancillary, sizeof(ancillary), 0};
	long length = SYS(recvmsg, socket, &message, MSG_CMSG_CLOEXEC);
	*fd_count = 0;
	if (length <= 0 || message.ancillary_length < ANCILLARY_HEADER_SIZE || ancillary.level != SOL_SOCKET ||
	    ancillary.type != SCM_RIGHTS)
		return length;
	*fd_count = (int)((ancillary.length - ANCILLARY_HEADER_SIZE) / sizeof(int));
	for (int i = 0; i < *fd_count; i++)
		fds[i] = ancillary.fds[i];
	return length;
}

static long send(int socket, const void *start, unsigned long length)
{
	return SYS(sendto, socket, start, length, MSG_NOSIGNAL, 0);
}

/* ---- text without libc ---- */

static char *put(char *to, const char *text)
{
	while (*text)
		*to++ = *text++;
	return to;
}

static char *put_number(char *to, long long number)
{
	char digits[24];
	int count = 0;
	unsigned long long rest = number < 0 ? -(unsigned long long)number : (unsigned long long)number;
	if (number < 0)
		*to++ = '-';
	do
		digits[count++] = (char)('0' + rest % 10);
	while (rest /= 10);
	while (count)
		*to++ = digits[--count];
	return to;
}

/* ---- faults: a step and the kernel's error ---- */

/* Reports the failed step, and ends this child. */
static void fail(int sync, const char *step, long result)
{
	char text[256];
	char *end = put(put_number(put(text, FAULT), -result), " ");
	end = put(end, step);
	send(sync, text, (unsigned long)(end - text));
	for (;;)
		SYS(exit_group, 1);
}

static long check(int sync, const char *step, long result)
{
	if (result < 0)
		fail(sync, step, result);
	return result;
}

/* ---- set-up: the steps of both kinds of children ---- */

/* Becomes another user of the zygote's namespace. */
static void take_id(int sync, u32 id)
{
	static const char step[] = "change the user";
	check(sync, step, SYS(setresgid, id, id, id));
	check(sync, step, SYS(setresuid, id, id, id));
	/* A process that changed its user may write its own id maps only if it is dumpable. */
	check(sync, step, SYS(prctl, PR_SET_DUMPABLE, 1, 0, 0, 0));
}

static long write_file(const char *path, const char *start, const char *end)
{
	long fd = SYS(openat, zygote.proc, path, O_WRONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return fd;
	long result = SYS(write, fd, start, end - start);
	SYS(close, fd);
	return result;
}

/* Makes the OOM killer choose it before its zygote. */
static void set_oom_score(int sync)
{
	static const char score[] = FUNCTION_OOM_SCORE;
	if (is_left_out("ChildOomScore"))
		return;
	long result = write_file("self/oom_score_adj", score, score + sizeof(score) - 1);
	check(sync, "set the OOM score", result);
}

/* Maps its only id to the user of handlers. */
static void map_one(int sync, u32 id)
{
	static const char step[] = "write the id maps";
	char text[64];
	char *end = put(put_number(put(put_number(text, FUNCTION_ID), " "), id), " 1");
	check(sync, step, write_file("self/setgroups", "deny", "deny" + 4));
	check(sync, step, write_file("self/uid_map", text, end));
	check(sync, step, write_file("self/gid_map", text, end));
}

/* Sets a limit that no control group has, if it is given. */
static void set_own_limit(int sync, int resource, u64 most)
{
	static const char step[] = "set the limits";
	u64 limits[LIMIT_SIZE / sizeof(u64)];
	if (!most)
		return;
	check(sync, step, SYS(prlimit64, 0, resource, 0, limits));
	limits[0] = limits[1] = most < limits[1] ? most : limits[1];
	check(sync, step, SYS(prlimit64, 0, resource, limits, 0));
}

/* The system call policy forbids changing the other limits, which are inherited from the zygote. */
static void set_limits(int sync, const struct setup *setup, int is_zygote)
{
	u64 limits[LIMIT_SIZE / sizeof(u64)], open_files = setup->open_files;
	check(sync, "read the limits", SYS(prlimit64, 0, RLIMIT_NOFILE, 0, limits));
	limits[0] = open_files < limits[1] ? open_files : limits[1];
	/* The children of a zygote have their own limits, which may be higher. */
	if (!is_zygote)
		limits[1] = limits[0];
	if (!is_left_out("ChildOpenFiles"))
		check(sync, "set the limits", SYS(prlimit64, 0, RLIMIT_NOFILE, limits, 0));
	SYS(umask, FUNCTION_UMASK);
	set_own_limit(sync, RLIMIT_NPROC, setup->processes);
}

static void place_descriptors(int sync, int channel, int log)
{
	static const char step[] = "place the descriptors";
	long null = check(sync, step, SYS(openat, AT_FDCWD, "/dev/null", O_CLOEXEC, 0));
	check(sync, step, SYS(dup3, null, 0, 0));
	check(sync, step, SYS(dup3, log, 1, 0));
	check(sync, step, SYS(dup3, log, 2, 0));
	check(sync, step, SYS(dup3, channel, SNOWMELT_CHANNEL_FD, O_CLOEXEC));
}

/* Those of this process, if its children have its own user id. */
static u32 zygote_capabilities(void)
{
	int shares_id = SYS(prctl, PR_CAPBSET_READ, SETFCAP, 0, 0, 0) == 1;
	return shares_id ? ID_SHARING_CAPABILITIES : ZYGOTE_CAPABILITIES;
}

static void drop_bounding_set(u32 kept)
{
	for (int capability = 0; capability < 64 && !is_left_out("ChildCapabilities"); capability++)
		if (capability >= 32 || !(kept >> capability & 1))
			/* Fails for numbers that this kernel does not have. */
			if (SYS(prctl, PR_CAPBSET_DROP, capability, 0, 0, 0) < 0)
				break;
}

static void drop_capabilities(int sync, u32 kept)
{
	static const char step[] = "drop capabilities";
	if (is_left_out("ChildCapabilities"))
		return;
	check(sync, step, SYS(prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0));
	struct capability_header header = {.version = CAPABILITY_VERSION_3, .pid = 0};
	struct capability_word sets[2] = {{.effective = kept, .permitted = kept}};
	check(sync, step, SYS(capset, &header, sets));
}

static void drop_privileges(int sync, u32 kept)
{
	drop_capabilities(sync, kept);
	if (!is_left_out("ChildNoNewPrivileges"))
		check(sync, "renounce new privileges", SYS(prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
}

static void allow(int sync, long ruleset, const char *folder, u64 rights)
{
	static const char step[] = "confine it by Landlock";
	struct landlock_path_beneath rule = {.allowed = rights};
	long parent = SYS(openat, AT_FDCWD, folder, O_PATH | O_CLOEXEC, 0);
	rule.parent = (int)check(sync, step, parent);
	check(sync, step, SYS(landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0));
}

/* Landlock, as far as this kernel supports it: no access to abstract unix sockets and processes
 * outside; for a handler also no changes of files except below /tmp, and of devices except in /dev.
 * A second barrier, as snowmelt_kernel::landlock is for programs. A zygote must still mount. */
static void confine(int sync, int is_zygote)
{
	static const char step[] = "confine it by Landlock";
	static const u64 files[] = LANDLOCK_FILES, scoped[] = LANDLOCK_SCOPED;
	int version = zygote.landlock < 0 ? 0 : zygote.landlock;
	if (version > LANDLOCK_NEWEST)
		version = LANDLOCK_NEWEST;
	struct landlock_ruleset rules = {
	    .files = is_zygote ? 0 : files[version],
	    .scoped = scoped[version],
	};
	if (!(rules.files | rules.scoped) || is_left_out("ChildLandlock"))
		return;
	long set = check(sync, step, SYS(landlock_create_ruleset, &rules, sizeof(rules), 0));
	if (rules.files) {
		allow(sync, set, "/tmp", rules.files & ~LANDLOCK_DENIED_IN_WRITABLE);
		allow(sync, set, "/dev", rules.files & LANDLOCK_ALLOWED_IN_DEVICES);
	}
	check(sync, step, SYS(landlock_restrict_self, set, 0));
}

/* Installs a filter, and returns the kernel's result. */
static long install(int sync, const char *step, const void *start, u32 length, int flags)
{
	struct filter filter = {(unsigned short)(length / FILTER_INSTRUCTION_SIZE), start};
	long result = SYS(seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter);
	if (result < 0 && flags & SECCOMP_WAIT_KILLABLE) {
		flags &= ~SECCOMP_WAIT_KILLABLE;
		result = SYS(seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter);
	}
	return check(sync, step, result);
}

/* Makes the calls that name an address wait, and sends their listener through the handover
 * descriptor, the only one whose messages do not wait now
 * (crates/sandbox/src/spawner/child/notifier.rs). Both are closed with all the rest. */
static void install_notifier(int sync, int handover_fd, const void *start, u32 length)
{
	static const char step[] = "set up the address notifier";
	int flags = SECCOMP_NEW_LISTENER | SECCOMP_WAIT_KILLABLE;
	long listener = install(sync, step, start, length, flags);
	struct slice slice = {HEARD, sizeof(HEARD) - 1};
	struct ancillary ancillary = {ANCILLARY_HEADER_SIZE + sizeof(int), SOL_SOCKET, SCM_RIGHTS,
				      {(int)listener}};
	struct message message = {
	    0, 0, &slice, 1, &ancillary, ANCILLARY_HEADER_SIZE + sizeof(u64), 0};
	check(sync, step, SYS(sendmsg, handover_fd, &message, MSG_NOSIGNAL));
	SYS(close, listener);
}

static void wait_for_go(int sync)
{
	char go[8];
	if (SYS(read, sync, go, sizeof(go)) <= 0)
		fail(sync, "wait for the spawner", -EPROTO);
}

/* The second half, with the inputs that the spawner has made in the meantime. Afterwards the socket
 * pair with the spawner is WAITING_FD, and the zygote's other descriptors but the channel are
 * closed. */
static void set_up(int sync, int is_zygote)
{
	int fds[MAX_FDS], count;
	struct setup *setup = (struct setup *)packet;
	long length = check(sync, "receive the set-up", receive(sync, packet, LONGEST_PACKET, fds, &count));
	if (length < (long)sizeof(*setup) || count < 2 ||
	    length < (long)sizeof(*setup) + setup->filter + setup->notifier)
		fail(sync, "receive the set-up", -EPROTO);
	char *filter = packet + sizeof(*setup);
	int handover_fd = (int)setup->open_files; /* with a notifier: above its limit */
	for (int entry = 2; entry < count && !is_left_out("ChildControlGroup"); entry++)
		check(sync, "enter the control group", SYS(write, fds[entry], "0", 1));
	send(sync, HERE, sizeof(HERE) - 1);
	/* While the spawner attaches the mounts. */
	if (setup->notifier)
		check(sync, "make the handover descriptor", SYS(dup3, sync, handover_fd, O_CLOEXEC));
	set_limits(sync, setup, is_zygote);
	u32 kept = is_zygote ? zygote_capabilities() : 0;
	drop_bounding_set(kept);
	wait_for_go(sync);
	check(sync, "enter the scratch", SYS(chdir, "/tmp"));
	/* Without entry files the spawner has moved it into its group only now. */
	if (!is_left_out("ChildControlGroupNamespace"))
		check(sync, "leave the control group namespace", SYS(unshare, CLONE_NEWCGROUP));
	drop_privileges(sync, kept);
	confine(sync, is_zygote);
	place_descriptors(sync, fds[0], fds[1]);
	if (setup->notifier)
		install_notifier(sync, handover_fd, filter + setup->filter, setup->notifier);
	if (setup->filter && !is_left_out("ChildSeccomp"))
		install(sync, "install the system call policy", filter, setup->filter, 0);
	check(sync, "place the descriptors", SYS(dup3, sync, WAITING_FD, O_CLOEXEC));
	if (is_left_out("ChildDescriptors"))
		SYS(close, sync); /* its end reports that the set-up is complete */
	else
		SYS(close_range, WAITING_FD + 1, ~0u, 0);
}

/* Whether its entries have been sent already: then a warm-up would only delay it. */
static int has_entries(void)
{
	struct waiting waiting = {WAITING_FD, POLLIN, 0};
	u64 now[2] = {0, 0};
	return SYS(ppoll, &waiting, 1, now, 0, 0) > 0;
}

/* Waits for its entries. Closing the socket pair reports that the set-up is complete. */
static void await_order(struct snowmelt_order *order)
{
	static const char step[] = "receive the entries";
	long length;
	do
		length = SYS(read, WAITING_FD, packet, LONGEST_PACKET);
	while (length == -EINTR);
	if (length <= 0)
		fail(WAITING_FD, step, length ? length : -EPROTO);
	order->entries = packet;
	order->length = (unsigned long)length;
	SYS(close, WAITING_FD);
}

/* ---- a handler ---- */

static void set_up_handler(int sync, int network, const struct order *what)
{
	u32 id = is_left_out("ChildUser") ? 1 : what->number;
	if (network >= 0)
		check(sync, "enter the network", SYS(setns, network, CLONE_NEWNET));
	if (!is_left_out("ChildRoot"))
		check(sync, "enter the root", SYS(setns, zygote.roots[what->root], CLONE_NEWNS));
	take_id(sync, id);
	check(sync, "leave the zygote's namespaces", SYS(unshare, CLONE_NEWUSER | CLONE_NEWNS));
	map_one(sync, id);
	set_oom_score(sync);
	set_up(sync, 0);
}

/* Keeps a root: a mount namespace that the spawner has made in this user namespace, and that
 * children copy. */
static long keep_root(u32 index, int root)
{
	long kept = SYS(fcntl, root, F_DUPFD_CLOEXEC, 0);
	if (kept < 0)
		return kept;
	if (zygote.roots[index])
		SYS(close, zygote.roots[index]);
	zygote.roots[index] = (int)kept;
	return 0;
}

/* ---- a zygote below this one ---- */

/* Writes the id maps of the process that is about to become a zygote: only its parent may map more
 * than one id. `first` is the id in this namespace that becomes its user 0. */
static long map_range(int pid, u32 first, u32 count)
{
	char path[64], text[64];
	char *end = put_number(put(put_number(put(text, "0 "), first), " "), count);
	long result = 0;
	/* The files belong to the new user of the process. */
	SYS(setfsuid, first);
	static const char *const files[] = {"/uid_map", "/gid_map"};
	for (int i = 0; i < 2 && result >= 0; i++) {
		*put(put_number(path, pid), files[i]) = 0;
		result = write_file(path, text, end);
	}
	SYS(setfsuid, 0);
	return result;
}

/* The helper between the zygote and the one below it: makes the namespaces, and in them the new
 * zygote, which the kernel reparents to the upper one when this process ends. Returns only in the
 * new zygote. (A process can return from the pid namespace of a child only if it owns its own.) */
static void make_zygote(int sync, int pair, const struct order *what,
			const struct snowmelt_hooks *hooks)
{
	char go;
	take_id(sync, what->number);
	check(sync, "leave the zygote's namespaces",
	      SYS(unshare, CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID));
	send(pair, "x", 1);
	if (SYS(read, pair, &go, 1) != 1)
		fail(sync, "write the id maps", -EPROTO);
	int pid = hooks->fork();
	if (pid) {
		send(pair, &pid, sizeof(pid));
		for (;;)
			SYS(exit_group, 0);
	}
}

/* The zygote's part: writes the id maps, and receives the process id of the new zygote. */
static long finish_zygote(int helper, int pair, const struct order *what)
{
	char ready;
	int pid;
	long result = -ECHILD;
	if (SYS(read, pair, &ready, 1) == 1 &&
	    (result = map_range(helper, what->number, what->count)) >= 0 && send(pair, "x", 1) == 1)
		result = SYS(read, pair, &pid, sizeof(pid)) == sizeof(pid) ? pid : -ECHILD;
	SYS(close, pair); /* ends a waiting helper */
	SYS(wait4, helper, 0, 0, 0);
	return result;
}

/* ---- reports about children ---- */

static void report(const char *start, const char *end)
{
	send(zygote.control, start, (unsigned long)(end - start));
}

static void report_failed(u64 token, const char *step, long result)
{
	char text[256];
	char *end = put_number(put(text, "{\"failed\":{\"token\":"), (long long)token);
	end = put(put(put(end, ",\"step\":\""), step), "\",\"errno\":");
	report(text, put(put_number(end, -result), "}}"));
}

static void report_exited(u64 token, int code, long long cpu_us)
{
	char text[256];
	char *end = put_number(put(text, "{\"exited\":{\"token\":"), (long long)token);
	end = put_number(put(end, ",\"code\":"), code);
	report(text, put(put_number(put(end, ",\"cpu_us\":"), cpu_us), "}}"));
}

void snowmelt_ready(int control)
{
	static const char text[] = "{\"ready\":{\"failed\":[],\"threads\":0}}";
	send(control, text, sizeof(text) - 1);
}

/* ---- the loop ---- */

static long add_child(int pid, u64 token)
{
	int index = 0;
	while (index < zygote.children && zygote.table[index].pid)
		index++;
	if (index == MAX_CHILDREN)
		return -EAGAIN;
	if (index == zygote.children)
		zygote.children++;
	zygote.table[index].pid = pid;
	zygote.table[index].token = token;
	return 0;
}

/* Reports children that have ended. Unknown processes are orphans of children, and of imports. */
static void reap(void)
{
	char drained[16 * SIGNAL_RECORD_SIZE];
	SYS(read, zygote.signals, drained, sizeof(drained));
	for (;;) {
		int status;
		long usage[USAGE_SIZE / sizeof(long)]; /* struct rusage: user and system time are first */
		long pid = SYS(wait4, -1, &status, WNOHANG, usage);
		if (pid <= 0)
			return;
		for (int i = 0; i < zygote.children; i++)
			if (zygote.table[i].pid == pid) {
				long long cpu = (usage[0] + usage[2]) * 1000000LL + usage[1] + usage[3];
				int signal = status & 0x7f;
				report_exited(zygote.table[i].token,
					   signal ? -signal : status >> 8 & 0xff, cpu);
				zygote.table[i].pid = 0;
				break;
			}
	}
}

/* Forks. In the child, whose set-up is then done, the result is 0. */
static long make_child(const struct order *what, const int *fds, int count,
		       const struct snowmelt_hooks *hooks, struct snowmelt_order *order)
{
	int is_zygote = what->kind == SNOWMELT_ZYGOTE, pair[2] = {-1, -1};
	if (count < 1 + (what->fresh != 0) + (what->network != 0) || what->root >= MAX_ROOTS)
		return -EPROTO;
	long result = is_zygote ? SYS(socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)
		      : what->fresh ? keep_root(what->root, fds[1]) : 0;
	if (result < 0)
		return result;
	if (!is_zygote && !is_left_out("ChildProcesses") && (result = SYS(unshare, CLONE_NEWPID)) < 0)
		return result;
	if (hooks->before)
		hooks->before();
	int pid = hooks->fork();
	if (pid == 0) {
		SYS(rt_sigprocmask, SIG_SETMASK, &zygote.mask, 0, sizeof(zygote.mask));
		if (is_zygote) {
			SYS(close, pair[0]);
			make_zygote(fds[0], pair[1], what, hooks);
			set_up(fds[0], 1);
			SYS(close, WAITING_FD);
		} else {
			set_up_handler(fds[0], what->network ? fds[count - 1] : -1, what);
		}
		if (hooks->after_in_child)
			hooks->after_in_child();
		order->length = 0;
		if (!is_zygote) {
			if (hooks->warm_in_child && !has_entries())
				hooks->warm_in_child();
			await_order(order);
		}
		return 0;
	}
	if (hooks->after_in_parent)
		hooks->after_in_parent();
	if (!is_zygote && SYS(setns, zygote.pid_namespace, CLONE_NEWPID) < 0)
		/* The next child would not be process 1, so the zygote must end. */
		SYS(exit_group, 1);
	if (is_zygote) {
		SYS(close, pair[1]);
		result = pid < 0 ? -EAGAIN : finish_zygote(pid, pair[0], what);
		if (pid < 0)
			SYS(close, pair[0]);
		return result;
	}
	return pid < 0 ? -EAGAIN : pid;
}

/* Handles one order; true in a child. */
static int handle_order(const struct snowmelt_hooks *hooks, struct snowmelt_order *order,
		enum snowmelt_kind *kind)
{
	struct order what;
	int fds[MAX_FDS], count;
	long length = receive(zygote.control, &what, sizeof(what), fds, &count);
	if (length == -EINTR)
		return 0;
	if (length != sizeof(what))
		SYS(exit_group, length == 0 ? 0 : 1);
	*kind = (enum snowmelt_kind)what.kind;
	long pid = make_child(&what, fds, count, hooks, order);
	if (pid == 0)
		return 1;
	long result = pid < 0 ? pid : add_child((int)pid, what.token);
	if (result < 0)
		report_failed(what.token, "fork", result);
	for (int i = 0; i < count; i++)
		SYS(close, fds[i]);
	return 0;
}

/* Opens what the children need, and makes SIGCHLD readable instead of delivered. */
static void initialise(int control)
{
	u64 limits[LIMIT_SIZE / sizeof(u64)], child = 1ull << (SIGCHLD - 1);
	zygote.control = control;
	zygote.children = 0;
	for (int i = 0; i < MAX_ROOTS; i++)
		zygote.roots[i] = 0;
	zygote.proc = (int)SYS(openat, AT_FDCWD, "/proc", O_PATH | O_CLOEXEC, 0);
	zygote.pid_namespace = (int)SYS(openat, zygote.proc, "self/ns/pid", O_CLOEXEC, 0);
	read_steps_to_leave_out(zygote.proc);
	SYS(rt_sigprocmask, SIG_BLOCK, &child, &zygote.mask, sizeof(child));
	zygote.signals = (int)SYS(signalfd4, -1, &child, sizeof(child), O_CLOEXEC | O_NONBLOCK);
	zygote.landlock = (int)SYS(landlock_create_ruleset, 0, 0, LANDLOCK_CREATE_RULESET_VERSION);
	/* The descriptors are for the platform's own work: raise the limit to the maximum. */
	SYS(prlimit64, 0, RLIMIT_NOFILE, 0, limits);
	limits[0] = limits[1];
	SYS(prlimit64, 0, RLIMIT_NOFILE, limits, 0);
	if (zygote.proc < 0 || zygote.pid_namespace < 0 || zygote.signals < 0)
		SYS(exit_group, 1);
}

enum snowmelt_kind snowmelt_serve(int control, const struct snowmelt_hooks *hooks,
				  struct snowmelt_order *order)
{
	enum snowmelt_kind kind;
	initialise(control);
	for (;;) {
		struct waiting watched[2] = {{control, POLLIN, 0}, {zygote.signals, POLLIN, 0}};
		if (SYS(ppoll, watched, 2, 0, 0, 0) <= 0)
			continue;
		if (watched[1].found)
			reap();
		if (watched[0].found && handle_order(hooks, order, &kind))
			return kind;
	}
}
