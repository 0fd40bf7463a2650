import { keepYoungGenerationSmall } from "../common/small-young-generation.ts";

keepYoungGenerationSmall();
