/* Requests its process id by the kernel's 32-bit interface, where that call has the number of
   `writev` in the 64-bit one: an allowed number, by the wrong interface. */
#include <stdio.h>

int main(void) {
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "0"(20L) : "memory");
    if (result > 0) puts("ESCAPED");
    return 0;
}
