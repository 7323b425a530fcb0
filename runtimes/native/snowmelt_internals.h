/* Generated from the Rust code by crates/sandbox/src/spawner/c_header.rs. Do not edit. Write it anew:
 * UPDATE_NATIVE=1 cargo test -p snowmelt-sandbox --lib c_header */
#ifndef SNOWMELT_INTERNALS_H
#define SNOWMELT_INTERNALS_H

typedef unsigned int u32;
typedef unsigned long long u64;

/* Of the kernel. */
#define AT_FDCWD (-100)
#define O_WRONLY 0x1
#define O_NONBLOCK 0x800
#define O_CLOEXEC 0x80000
#define O_PATH 0x200000
#define F_DUPFD_CLOEXEC 0x406
#define SIGCHLD 0x11
#define SIG_BLOCK 0x0
#define SIG_SETMASK 0x2
#define WNOHANG 0x1
#define POLLIN 0x1
#define EINTR 0x4
#define EAGAIN 0xb
#define ECHILD 0xa
#define EPROTO 0x47
#define SOCK_SEQPACKET 0x5
#define SOCK_CLOEXEC 0x80000
#define AF_UNIX 0x1
#define SOL_SOCKET 0x1
#define SCM_RIGHTS 0x1
#define MSG_NOSIGNAL 0x4000
#define MSG_CMSG_CLOEXEC 0x40000000
#define RLIMIT_NOFILE 0x7
#define RLIMIT_NPROC 0x6
#define CLONE_NEWNS 0x20000
#define CLONE_NEWCGROUP 0x2000000
#define CLONE_NEWUSER 0x10000000
#define CLONE_NEWPID 0x20000000
#define CLONE_NEWNET 0x40000000
#define PR_SET_DUMPABLE 0x4
#define PR_CAPBSET_DROP 0x18
#define PR_CAPBSET_READ 0x17
#define PR_SET_NO_NEW_PRIVS 0x26
#define PR_CAP_AMBIENT 0x2f
#define PR_CAP_AMBIENT_CLEAR_ALL 0x4
#define SECCOMP_SET_MODE_FILTER 0x1
#define SECCOMP_NEW_LISTENER 0x8
#define SECCOMP_WAIT_KILLABLE 0x20
#define CAPABILITY_VERSION_3 0x20080522
#define LANDLOCK_CREATE_RULESET_VERSION 0x1
#define LANDLOCK_RULE_PATH_BENEATH 0x1
#ifndef __NR_landlock_create_ruleset
#define __NR_landlock_create_ruleset 444
#endif
#ifndef __NR_landlock_add_rule
#define __NR_landlock_add_rule 445
#endif
#ifndef __NR_landlock_restrict_self
#define __NR_landlock_restrict_self 446
#endif

/* Structures of the kernel: sizes and offsets in bytes. */
#define SLICE_SIZE 16
#define MESSAGE_SIZE 56
#define MESSAGE_SLICES 16
#define MESSAGE_ANCILLARY 32
#define MESSAGE_FLAGS 48
#define ANCILLARY_HEADER_SIZE 16
#define ANCILLARY_TYPE 12
#define WAITING_SIZE 8
#define WAITING_FOUND 6
#define FILTER_SIZE 16
#define FILTER_START 8
#define FILTER_INSTRUCTION_SIZE 8
#define SIGNAL_RECORD_SIZE 128
#define USAGE_SIZE 144
#define LIMIT_SIZE 16

/* Of the spawner. */
#define ZYGOTE_CAPABILITIES 0x2400c0
#define ID_SHARING_CAPABILITIES 0x802400c0
#define SETFCAP 0x1f
#define FUNCTION_ID 0x3e8
#define FUNCTION_UMASK 0x12
#define MAX_FDS 0x10
#define MAX_ROOTS 0x20
#define MAX_CHILDREN 0x4000
#define LONGEST_PACKET 0x30000
#define LANDLOCK_NEWEST 0x6
#define LANDLOCK_DENIED_IN_WRITABLE 0x8840
#define LANDLOCK_ALLOWED_IN_DEVICES 0xc002
#define FUNCTION_OOM_SCORE "800"
#define HERE "here"
#define HEARD "heard"
#define FAULT "fault "
/* By the version of Landlock. */
#define LANDLOCK_FILES \
	{0x0, 0x0, 0x3ff2, 0x7ff2, 0x7ff2, 0xfff2, 0xfff2}
#define LANDLOCK_SCOPED {0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x3}

struct landlock_ruleset {
	u64 files;
	u64 network;
	u64 scoped;
};
_Static_assert(sizeof(struct landlock_ruleset) == 24, "not as in Rust");
_Static_assert(__builtin_offsetof(struct landlock_ruleset, files) == 0, "not as in Rust");
_Static_assert(__builtin_offsetof(struct landlock_ruleset, network) == 8, "not as in Rust");
_Static_assert(__builtin_offsetof(struct landlock_ruleset, scoped) == 16, "not as in Rust");

struct landlock_path_beneath {
	u64 allowed;
	int parent;
} __attribute__((packed));
_Static_assert(sizeof(struct landlock_path_beneath) == 12, "not as in Rust");
_Static_assert(__builtin_offsetof(struct landlock_path_beneath, allowed) == 0, "not as in Rust");
_Static_assert(__builtin_offsetof(struct landlock_path_beneath, parent) == 8, "not as in Rust");

struct capability_header {
	u32 version;
	int pid;
};
_Static_assert(sizeof(struct capability_header) == 8, "not as in Rust");
_Static_assert(__builtin_offsetof(struct capability_header, version) == 0, "not as in Rust");
_Static_assert(__builtin_offsetof(struct capability_header, pid) == 4, "not as in Rust");

struct capability_word {
	u32 effective;
	u32 permitted;
	u32 inheritable;
};
_Static_assert(sizeof(struct capability_word) == 12, "not as in Rust");
_Static_assert(__builtin_offsetof(struct capability_word, effective) == 0, "not as in Rust");
_Static_assert(__builtin_offsetof(struct capability_word, permitted) == 4, "not as in Rust");
_Static_assert(__builtin_offsetof(struct capability_word, inheritable) == 8, "not as in Rust");

struct order {
	u32 kind;
	u32 number;
	u32 count;
	u32 root;
	u32 fresh;
	u32 network;
	u64 token;
};
_Static_assert(sizeof(struct order) == 32, "not as in Rust");
_Static_assert(__builtin_offsetof(struct order, kind) == 0, "not as in Rust");
_Static_assert(__builtin_offsetof(struct order, number) == 4, "not as in Rust");
_Static_assert(__builtin_offsetof(struct order, count) == 8, "not as in Rust");
_Static_assert(__builtin_offsetof(struct order, root) == 12, "not as in Rust");
_Static_assert(__builtin_offsetof(struct order, fresh) == 16, "not as in Rust");
_Static_assert(__builtin_offsetof(struct order, network) == 20, "not as in Rust");
_Static_assert(__builtin_offsetof(struct order, token) == 24, "not as in Rust");

struct setup {
	u32 filter;
	u32 notifier;
	u64 open_files;
	u64 processes;
};
_Static_assert(sizeof(struct setup) == 24, "not as in Rust");
_Static_assert(__builtin_offsetof(struct setup, filter) == 0, "not as in Rust");
_Static_assert(__builtin_offsetof(struct setup, notifier) == 4, "not as in Rust");
_Static_assert(__builtin_offsetof(struct setup, open_files) == 8, "not as in Rust");
_Static_assert(__builtin_offsetof(struct setup, processes) == 16, "not as in Rust");

#endif
