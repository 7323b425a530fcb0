/* Memory for Python's small objects in one address range, so that it can become huge pages.
 *
 * The interpreter maps arenas of 1 MiB one at a time, and these end up scattered between libraries.
 * A fork copies a page table entry for each page of 4 KiB; with huge pages, one for each 512 pages.
 * PyObject_SetArenaAllocator registers these functions with the interpreter.
 */
#include "syscalls.h"

#define PROT_READ_WRITE 3
#define MAP_PRIVATE_ANONYMOUS_NORESERVE (0x2 | 0x20 | 0x4000)
#define MADV_DONTNEED 4

#define HUGE_PAGE (2ul << 20)
#define ARENA (1ul << 20)
#define RESERVED (64ul << 30)
#define MAX_FREE 4096

static struct {
	char *start, *next, *end;
	char *free[MAX_FREE];
	int free_count;
} arenas;

static char *map(unsigned long size)
{
	long address = SYS(mmap, 0, size, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS_NORESERVE, -1, 0);
	return address < 0 && address > -4096 ? 0 : (char *)address;
}

/* Reserves addresses, not memory. If even that is limited, arenas are mapped one by one. */
static void reserve(void)
{
	char *start = map(RESERVED);
	if (!start)
		return;
	arenas.start = (char *)(((unsigned long)start + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1));
	arenas.next = arenas.start;
	arenas.end = start + RESERVED;
}

void *snowmelt_arena_alloc(void *context, unsigned long size)
{
	(void)context;
	if (!arenas.start)
		reserve();
	if (size != ARENA)
		return map(size);
	if (arenas.free_count)
		return arenas.free[--arenas.free_count];
	if (arenas.next == arenas.end || !arenas.start)
		return map(size);
	arenas.next += ARENA;
	return arenas.next - ARENA;
}

void snowmelt_arena_free(void *context, void *address, unsigned long size)
{
	char *arena = address;
	(void)context;
	if (arena < arenas.start || arena >= arenas.end) {
		SYS(munmap, address, size);
		return;
	}
	SYS(madvise, address, size, MADV_DONTNEED);
	if (arenas.free_count < MAX_FREE)
		arenas.free[arenas.free_count++] = arena;
}

/* The reserved addresses that were never used, as [from, to). */
void snowmelt_arenas_unused(unsigned long *from, unsigned long *to)
{
	*from = (unsigned long)arenas.next;
	*to = (unsigned long)arenas.end;
}
