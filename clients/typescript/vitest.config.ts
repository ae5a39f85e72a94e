import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    projects: [
      { test: { name: "unit", include: ["test/**/*.test.ts"], exclude: ["test/server/**"], testTimeout: 20_000 } },
      {
        test: {
          name: "server",
          include: ["test/server/**/*.test.ts"],
          testTimeout: 240_000,
          hookTimeout: 60_000,
          // Both files pack the package, which builds it, and the one with the server counts seconds.
          fileParallelism: false,
        },
      },
    ],
  },
});
